//! Operands of different types, as PostgreSQL brings them together before a query is typed.
//!
//! The engine gives an expression such as `CASE` the type of its first branch until it adds casts,
//! which it does after a plan is made. So the casts of every expression are added here, from the
//! bottom, and types are read only after that ([`coerced`], [`joined`]).
//!
//! Beside a floating point number, a decimal or an integer becomes `double precision`, as in
//! PostgreSQL: the engine would make a decimal with 15 digits before the point of both.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRewriter as _};
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, InSubquery, SetComparison, WindowFunction};
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Cast, Expr, ExprSchemable as _, LogicalPlan, Subquery, Union,
};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::{decimal, time};

/// Functions whose arguments and result have a type in common.
const COMMON: [&str; 6] = ["coalesce", "greatest", "least", "nullif", "nvl", "make_array"];

/// The floating point type that values of these types have in common. `None` if there is none, or
/// the engine chooses the same.
fn common_float<'a>(types: impl Iterator<Item = &'a DataType> + Clone) -> Option<DataType> {
    let has = |is: &dyn Fn(&DataType) -> bool| types.clone().any(is);
    let is_mixed = has(&|of| of.is_floating()) && has(&|of| decimal(of).is_some());
    let has_double = has(&|of| *of == DataType::Float64);
    is_mixed.then_some(if has_double { DataType::Float64 } else { DataType::Float32 })
}

fn is_time(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Timestamp(..))
}

/// The timestamp that dates and timestamps have in common. The engine would choose nanoseconds, which
/// only the years 1677 to 2262 have.
fn common_time<'a>(types: impl Iterator<Item = &'a DataType> + Clone) -> Option<DataType> {
    let mut times = types.clone().filter(|of| matches!(of, DataType::Timestamp(..)));
    let is_zoned = |of: &&DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    let to = times.clone().find(is_zoned).or_else(|| times.next())?;
    types.into_iter().any(|of| is_time(of) && of != to).then(|| to.clone())
}

fn cast(expr: Expr, to: &DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to.clone()))
}

fn is_exact(of: &DataType) -> bool {
    of.is_integer() || decimal(of).is_some()
}

/// The operands of a comparison: of a number with a floating point number, both are `double
/// precision`; of a date or a text with a timestamp, both are timestamps.
fn compared(operands: Vec<Expr>, schema: &DFSchema) -> Vec<Expr> {
    let types: Vec<_> = operands.iter().map(|operand| operand.get_type(schema).ok()).collect();
    // The engine would compare nanoseconds, which only the years 1677 to 2262 have.
    let mut times = types.iter().flatten().filter(|of| matches!(of, DataType::Timestamp(..)));
    if let Some(to) = times.next().cloned()
        && times.all(|of| *of == to)
    {
        let time_of = |(operand, of): (Expr, Option<DataType>)| match of {
            Some(of) if of.is_string() || of == DataType::Date32 => cast(operand, &to),
            _ => operand,
        };
        return operands.into_iter().zip(types).map(time_of).collect();
    }
    let has = |is: fn(&DataType) -> bool| types.iter().flatten().any(is);
    if !has(DataType::is_floating) || !has(is_exact) {
        return operands;
    }
    let double = |(operand, of): (Expr, Option<DataType>)| match of {
        Some(of) if is_exact(&of) => cast(operand, &DataType::Float64),
        _ => operand,
    };
    operands.into_iter().zip(types).map(double).collect()
}

/// The values of an expression whose result is one of them.
fn common(values: Vec<Expr>, schema: &DFSchema) -> Vec<Expr> {
    let types: Vec<_> = values.iter().map(|value| value.get_type(schema).ok()).collect();
    if let Some(to) = common_time(types.iter().flatten()) {
        let time = |(value, of): (Expr, Option<DataType>)| match of {
            Some(of) if is_time(&of) && of != to => cast(value, &to),
            _ => value,
        };
        return values.into_iter().zip(types).map(time).collect();
    }
    let Some(to) = common_float(types.iter().flatten()) else { return values };
    let float = |(value, of): (Expr, Option<DataType>)| match of {
        Some(of) if is_exact(&of) => cast(value, &to),
        _ => value,
    };
    values.into_iter().zip(types).map(float).collect()
}

fn pair(left: Expr, right: Expr, schema: &DFSchema) -> Result<(Box<Expr>, Box<Expr>)> {
    match <[Expr; 2]>::try_from(compared(vec![left, right], schema)) {
        Ok([left, right]) => Ok((Box::new(left), Box::new(right))),
        Err(_) => plan_err!("a comparison has two operands"),
    }
}

/// An expression with the casts that its operands need.
///
/// # Errors
/// Its operands do not go together.
pub(super) fn coerced(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let expr = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if time::is_comparison(op) => {
            let (left, right) = pair(*left, *right, schema)?;
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            match <[Expr; 3]>::try_from(compared(vec![*expr, *low, *high], schema)) {
                Ok([expr, low, high]) => {
                    Expr::Between(Between::new(expr.into(), negated, low.into(), high.into()))
                }
                Err(_) => return plan_err!("BETWEEN has three operands"),
            }
        }
        Expr::InList(InList { expr, list, negated }) => {
            let mut all = vec![*expr];
            all.extend(list);
            let mut all = compared(all, schema);
            let expr = Box::new(all.remove(0));
            Expr::InList(InList { expr, list: all, negated })
        }
        Expr::Case(case) => Expr::Case(of_case(case, schema)),
        Expr::ScalarFunction(mut call) if COMMON.contains(&call.name()) => {
            call.args = common(call.args, schema);
            Expr::ScalarFunction(call)
        }
        Expr::WindowFunction(call) => Expr::from(shifted(*call, schema)?),
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let (expr, subquery) = within(*expr, subquery, schema)?;
            Expr::InSubquery(InSubquery { expr, subquery, negated })
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
            let (expr, subquery) = within(*expr, subquery, schema)?;
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
        }
        other => other,
    };
    let made = TypeCoercionRewriter::new(schema).f_up(expr)?;
    Ok(Transformed::yes(made.data))
}

/// An expression of several new parts with the casts that all of them need.
///
/// # Errors
/// Operands do not go together.
pub(super) fn all_coerced(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let made = expr.transform_up(|expr| coerced(expr, schema))?;
    Ok(Transformed::yes(made.data))
}

fn of_case(case: Case, schema: &DFSchema) -> Case {
    let Case { mut expr, when_then_expr, mut else_expr } = case;
    let (mut whens, mut results): (Vec<_>, Vec<_>) =
        when_then_expr.into_iter().map(|(when, then)| (*when, *then)).unzip();
    if let Some(of) = expr.take() {
        whens.insert(0, *of);
        whens = compared(whens, schema);
        expr = Some(Box::new(whens.remove(0)));
    }
    let has_else = else_expr.is_some();
    results.extend(else_expr.take().map(|it| *it));
    let mut results = common(results, schema);
    if has_else {
        else_expr = results.pop().map(Box::new);
    }
    let pairs = whens.into_iter().zip(results);
    let when_then_expr = pairs.map(|(when, then)| (Box::new(when), Box::new(then))).collect();
    Case { expr, when_then_expr, else_expr }
}

/// `lag` and `lead` with a default: the engine would cast it to the type of the values.
fn shifted(mut call: WindowFunction, schema: &DFSchema) -> Result<WindowFunction> {
    let name = call.fun.name();
    if !matches!(name, "lag" | "lead") {
        return Ok(call);
    }
    let [value, offset, default] = call.params.args.as_slice() else { return Ok(call) };
    let (of, of_default) = (value.get_type(schema)?, default.get_type(schema)?);
    let is_number = |of: &DataType| of.is_floating() || is_exact(of);
    let is_written = of_default.is_null()
        || matches!(default, Expr::Literal(it, _) if it.data_type().is_string());
    if of == of_default || is_written {
        return Ok(call);
    }
    let types = [&of, &of_default];
    let to = common_float(types.into_iter()).or_else(|| type_union_coercion(&of, &of_default));
    let Some(to) = to.filter(|_| is_number(&of) && is_number(&of_default)) else {
        return plan_err!("the default of {name} is {of_default}, not {of}; cast one of them");
    };
    call.params.args = vec![cast(value.clone(), &to), offset.clone(), cast(default.clone(), &to)];
    Ok(call)
}

/// A value, and the subquery it is compared with.
fn within(expr: Expr, mut subquery: Subquery, schema: &DFSchema) -> Result<(Box<Expr>, Subquery)> {
    let of = expr.get_type(schema)?;
    let inner = subquery.subquery.schema().fields().first().map(|it| it.data_type().clone());
    let Some(inner) = inner else { return Ok((Box::new(expr), subquery)) };
    let (is_left, is_right) =
        (inner.is_floating() && is_exact(&of), of.is_floating() && is_exact(&inner));
    if is_right {
        subquery.subquery = Arc::new(with_types(
            Arc::unwrap_or_clone(subquery.subquery),
            &[Some(DataType::Float64)],
        )?);
    }
    Ok((Box::new(if is_left { cast(expr, &DataType::Float64) } else { expr }), subquery))
}

/// A schema with other types where they are given.
fn retyped(schema: &DFSchema, types: &[Option<DataType>]) -> Result<DFSchema> {
    let fields = schema.iter().enumerate().map(|(index, (qualifier, field))| {
        let to = types.get(index).cloned().flatten();
        let field = field.as_ref().clone();
        let field = match to {
            Some(to) => field.with_data_type(to),
            None => field,
        };
        (qualifier.cloned(), Arc::new(field))
    });
    DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())
}

/// A plan whose columns are cast to these types.
fn with_types(plan: LogicalPlan, types: &[Option<DataType>]) -> Result<LogicalPlan> {
    let wanted = retyped(plan.schema(), types)?;
    coerce_plan_expr_for_schema(plan, &wanted)
}

/// A node with the casts that its inputs need: the keys of a join, and the sides of a `UNION`.
///
/// # Errors
/// Its inputs do not go together.
pub(super) fn joined(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = match plan {
        LogicalPlan::Filter(mut filter) => {
            let schema = Arc::clone(filter.input.schema());
            filter.predicate = filter.predicate.cast_to(&DataType::Boolean, &schema)?;
            LogicalPlan::Filter(filter)
        }
        LogicalPlan::Join(mut join) => {
            let (left, right) = (Arc::clone(join.left.schema()), Arc::clone(join.right.schema()));
            for (a, b) in &mut join.on {
                let (of_a, of_b) = (a.get_type(&left)?, b.get_type(&right)?);
                if of_a.is_floating() && is_exact(&of_b) {
                    *b = cast(b.clone(), &DataType::Float64);
                } else if of_b.is_floating() && is_exact(&of_a) {
                    *a = cast(a.clone(), &DataType::Float64);
                }
            }
            LogicalPlan::Join(join)
        }
        LogicalPlan::Union(union) => LogicalPlan::Union(with_floats(union)?),
        LogicalPlan::RecursiveQuery(recursive) => {
            refuse_narrowed(&recursive.recursive_term)?;
            LogicalPlan::RecursiveQuery(recursive)
        }
        other => other,
    };
    let schema = datafusion::logical_expr::utils::merge_schema(&plan.inputs());
    TypeCoercionRewriter::new(&schema).coerce_plan(plan)?.recompute_schema()
}

/// The sides of a `UNION` with floating point numbers where one side has them and another decimals.
fn with_floats(mut union: Union) -> Result<Union> {
    let count = union.schema.fields().len();
    let types = (0..count).map(|column| {
        let fields = union.inputs.iter().filter_map(|it| it.schema().fields().get(column));
        common_float(fields.map(|field| field.data_type()))
    });
    let types: Vec<_> = types.collect();
    if types.iter().any(Option::is_some) {
        let inputs = union.inputs.into_iter();
        let inputs = inputs.map(|it| Ok(Arc::new(with_types(Arc::unwrap_or_clone(it), &types)?)));
        union.inputs = inputs.collect::<Result<_>>()?;
        // The engine brings the types of the sides together with those that the node had.
        union.schema = Arc::new(retyped(&union.schema, &types)?);
    }
    Ok(union)
}

/// Refuses a recursive term that the engine has cast to the types of the other one, where that loses
/// digits. PostgreSQL refuses different types, too.
fn refuse_narrowed(term: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Projection(projection) = term else { return Ok(()) };
    for expr in &projection.expr {
        let expr = expr.clone().unalias_nested().data;
        let Expr::Cast(cast) = &expr else { continue };
        let (of, to) = (cast.expr.get_type(projection.input.schema())?, cast.field.data_type());
        let is_narrowed = (of.is_floating() && is_exact(to))
            || decimal(&of).is_some_and(|(_, scale)| {
                to.is_integer() || decimal(to).is_some_and(|(_, to)| to < scale)
            });
        if is_narrowed {
            return plan_err!(
                "the recursive term of a query has {of} where the other one has {to}; cast the \
                 column of the other one"
            );
        }
    }
    Ok(())
}
