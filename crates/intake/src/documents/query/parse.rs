//! Parsing of expressions: recursive descent, bounded in depth and size.

use super::number::Number;
use super::{COMPARISONS_MAX, DEPTH_MAX, DocumentQuery, Expression, Literal, QUERY_SIZE_MAX, Test};

/// Why an expression is not valid. The message says where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// Something else was expected.
    #[error("at byte {at}: expected {expected}")]
    Expected {
        /// Offset in the expression.
        at: usize,
        /// What was expected.
        expected: &'static str,
    },
    /// It is larger than a limit.
    #[error("the expression has more than {max} {what}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// The limit.
        max: usize,
    },
}

impl DocumentQuery {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`QueryError`] says what was expected where.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > QUERY_SIZE_MAX {
            return Err(QueryError::TooLarge { what: "bytes", max: QUERY_SIZE_MAX });
        }
        let mut parser = Parser { text, at: 0, depth: 0, comparisons: 0 };
        let expression = parser.any_of()?;
        parser.space();
        match parser.at == text.len() {
            true => Ok(Self(expression)),
            false => Err(parser.expected("\"and\", \"or\" or the end")),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    comparisons: usize,
}

impl<'t> Parser<'t> {
    fn any_of(&mut self) -> Result<Expression, QueryError> {
        let mut all = vec![self.all_of()?];
        while self.word("or") {
            all.push(self.all_of()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::Or(all) })
    }

    fn all_of(&mut self) -> Result<Expression, QueryError> {
        let mut all = vec![self.one()?];
        while self.word("and") {
            all.push(self.one()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::And(all) })
    }

    fn one(&mut self) -> Result<Expression, QueryError> {
        let is_not = self.word("not");
        if !is_not && !self.sign("(") {
            return self.comparison();
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(QueryError::TooLarge { what: "levels", max: DEPTH_MAX });
        }
        let inner = if is_not {
            Expression::Not(Box::new(self.one()?))
        } else {
            let inner = self.any_of()?;
            if !self.sign(")") {
                return Err(self.expected("\")\""));
            }
            inner
        };
        self.depth -= 1;
        Ok(inner)
    }

    fn comparison(&mut self) -> Result<Expression, QueryError> {
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return Err(QueryError::TooLarge { what: "comparisons", max: COMPARISONS_MAX });
        }
        let mut path = vec![self.key()?];
        while self.rest().starts_with('.') {
            self.at += 1;
            path.push(self.key()?);
        }
        let test = self.test()?;
        Ok(Expression::Compare { path, test })
    }

    fn test(&mut self) -> Result<Test, QueryError> {
        if self.word("exists") {
            return Ok(Test::Exists);
        }
        if self.word("in") {
            return self.list();
        }
        // Longer signs first.
        for (sign, orders) in [
            ("<=", [true, true, false]),
            (">=", [false, true, true]),
            ("<", [true, false, false]),
            (">", [false, false, true]),
        ] {
            if self.sign(sign) {
                return Ok(Test::Ordered(self.literal()?, orders));
            }
        }
        if self.sign("!=") {
            return Ok(Test::Different(self.literal()?));
        }
        if self.sign("==") || self.sign("=") {
            return Ok(Test::Equal(self.literal()?));
        }
        if self.sign("^=") {
            return self.text_literal().map(Test::Begins);
        }
        if self.sign("~") {
            return self.text_literal().map(Test::Contains);
        }
        Err(self.expected("one of = != < <= > >= ~ ^= in exists"))
    }

    fn list(&mut self) -> Result<Test, QueryError> {
        if !self.sign("(") {
            return Err(self.expected("\"(\""));
        }
        let mut values = vec![self.literal()?];
        while self.sign(",") {
            values.push(self.literal()?);
        }
        match self.sign(")") {
            true => Ok(Test::OneOf(values)),
            false => Err(self.expected("\",\" or \")\"")),
        }
    }

    /// A key of a path.
    fn key(&mut self) -> Result<String, QueryError> {
        const EXPECTED: &str = "a key: letters, digits, _ - $ @, or a JSON string";
        self.space();
        if self.rest().starts_with('"') {
            return self.string();
        }
        let size = self.word_size();
        let key = self.rest().get(..size).filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| self.expected(EXPECTED))?.to_owned();
        self.at += size;
        Ok(key)
    }

    fn literal(&mut self) -> Result<Literal, QueryError> {
        const EXPECTED: &str = "a JSON string, a number, true, false or null";
        self.space();
        for (word, value) in [
            ("null", Literal::Null),
            ("true", Literal::Bool(true)),
            ("false", Literal::Bool(false)),
        ] {
            if self.word(word) {
                return Ok(value);
            }
        }
        if self.rest().starts_with('"') {
            return self.string().map(|text| Literal::Text(text.into_bytes()));
        }
        let is_of_number =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let size = self.rest().find(|c| !is_of_number(c)).unwrap_or(self.rest().len());
        let number = self.rest().get(..size).and_then(Number::parse);
        let number = number.ok_or_else(|| self.expected(EXPECTED))?;
        self.at += size;
        Ok(Literal::Number(number))
    }

    fn text_literal(&mut self) -> Result<Vec<u8>, QueryError> {
        self.space();
        match self.rest().starts_with('"') {
            true => self.string().map(String::into_bytes),
            false => Err(self.expected("a JSON string")),
        }
    }

    /// A JSON string.
    fn string(&mut self) -> Result<String, QueryError> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
        let Some(Ok(text)) = values.next() else { return Err(self.expected("a JSON string")) };
        self.at += values.byte_offset();
        Ok(text)
    }

    /// Takes a word, in any case, if it is the next one.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let size = self.word_size();
        let is_next = self.rest().get(..size).is_some_and(|next| next.eq_ignore_ascii_case(word));
        if is_next {
            self.at += size;
        }
        is_next
    }

    /// Takes a sign if it is next.
    fn sign(&mut self, sign: &str) -> bool {
        self.space();
        let is_next = self.rest().starts_with(sign);
        if is_next {
            self.at += sign.len();
        }
        is_next
    }

    fn word_size(&self) -> usize {
        let is_of_key = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@');
        self.rest().find(|c| !is_of_key(c)).unwrap_or(self.rest().len())
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn expected(&self, expected: &'static str) -> QueryError {
        QueryError::Expected { at: self.at, expected }
    }
}
