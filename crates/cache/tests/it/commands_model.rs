//! Random commands compared with plain collections of the standard library.

use std::collections::{BTreeMap, BTreeSet};

use forebay_base::fs::sim::Rng;
use forebay_cache::engine::Engine;
use forebay_cache::resp::Proto;

use crate::commands_support::{Node, Ours};

fn bulk(text: &str) -> Node {
    Node::Bulk(text.as_bytes().to_vec())
}

fn count(value: usize) -> Node {
    Node::Int(i64::try_from(value).unwrap())
}

fn flag(value: bool) -> Node {
    Node::Int(value.into())
}

/// Runs steps drawn by `step`, which returns a command and the reply of its model.
fn check(steps: usize, mut step: impl FnMut(&mut Rng) -> (String, Node)) {
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp3);
    let mut rng = Rng::new(3);
    for _ in 0..steps {
        let (line, expected) = step(&mut rng);
        let reply = ours.line(&line).sorted(1);
        assert_eq!(reply.text(), expected.sorted(1).text(), "{line}");
    }
}

/// A member, from a set large enough for both encodings of a collection.
fn member(rng: &mut Rng) -> String {
    let number = rng.below(300);
    if rng.one_in(3) { format!("member:{number}") } else { number.to_string() }
}

#[test]
fn a_hash_is_a_map() {
    let mut model = BTreeMap::<String, String>::new();
    check(20_000, |rng| {
        let (field, value) = (member(rng), member(rng));
        match rng.below(12) {
            0..=4 => {
                let new = model.insert(field.clone(), value.clone()).is_none();
                (format!("HSET h {field} {value}"), flag(new))
            }
            5 => {
                let new = !model.contains_key(&field);
                model.entry(field.clone()).or_insert_with(|| value.clone());
                (format!("HSETNX h {field} {value}"), flag(new))
            }
            6..=7 => (format!("HDEL h {field}"), flag(model.remove(&field).is_some())),
            8 => {
                let held = model.get(&field).map_or(Node::Null, |value| bulk(value));
                (format!("HGET h {field}"), held)
            }
            9 => ("HLEN h".to_owned(), count(model.len())),
            10 if rng.one_in(50) => {
                let pairs = model.iter().flat_map(|(field, value)| [bulk(field), bulk(value)]);
                ("HGETALL h".to_owned(), Node::Map(pairs.collect()))
            }
            10 if rng.one_in(50) => {
                let there = !std::mem::take(&mut model).is_empty();
                ("DEL h".to_owned(), flag(there))
            }
            _ => (format!("HEXISTS h {field}"), flag(model.contains_key(&field))),
        }
    });
}

#[test]
fn sets_are_sets() {
    let mut models: [BTreeSet<String>; 3] = Default::default();
    let sorted = |set: BTreeSet<String>| Node::Set(set.iter().map(|member| bulk(member)).collect());
    check(20_000, |rng| {
        let (a, b, member) = (rng.below(3), rng.below(3), member(rng));
        let others = (models[a].clone(), models[b].clone());
        match rng.below(24) {
            0..=8 => (format!("SADD s{a} {member}"), flag(models[a].insert(member))),
            9..=14 => (format!("SREM s{a} {member}"), flag(models[a].remove(&member))),
            15 => {
                let moved = models[a].remove(&member);
                if moved {
                    models[b].insert(member.clone());
                }
                (format!("SMOVE s{a} s{b} {member}"), flag(moved))
            }
            16 => (format!("SINTER s{a} s{b}"), sorted(&others.0 & &others.1)),
            17 => (format!("SUNION s{a} s{b}"), sorted(&others.0 | &others.1)),
            18 => (format!("SDIFF s{a} s{b}"), sorted(&others.0 - &others.1)),
            19 if rng.one_in(20) => {
                models[2] = &others.0 & &others.1;
                (format!("SINTERSTORE s2 s{a} s{b}"), count(models[2].len()))
            }
            20 => (format!("SINTERCARD 2 s{a} s{b}"), count((&others.0 & &others.1).len())),
            21 => (format!("SCARD s{a}"), count(models[a].len())),
            _ => (format!("SISMEMBER s{a} {member}"), flag(models[a].contains(&member))),
        }
    });
}

/// Members in order of their scores, which are integers here.
fn ordered(model: &BTreeMap<String, i32>) -> Vec<(i32, String)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (*score, member.clone())).collect();
    all.sort();
    all
}

#[test]
fn a_sorted_set_is_an_ordered_map() {
    let mut model = BTreeMap::<String, i32>::new();
    let scored_members = |members: &[(i32, String)]| {
        // Nested, so that the order counts.
        Node::Array(vec![bulk(&format!("{members:?}"))])
    };
    let engine = Engine::in_memory(7);
    let mut ours = Ours::new(&engine, Proto::Resp3);
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let member = member(&mut rng);
        let score = i32::try_from(rng.below(40)).unwrap() - 20;
        let (line, expected) = match rng.below(14) {
            0..=4 => {
                let new = model.insert(member.clone(), score).is_none();
                (format!("ZADD z {score} {member}"), flag(new))
            }
            5..=6 => (format!("ZREM z {member}"), flag(model.remove(&member).is_some())),
            7 => {
                let held = model.entry(member.clone()).or_default();
                *held += score;
                (format!("ZINCRBY z {score} {member}"), Node::Double(held.to_string()))
            }
            8 => {
                let all = ordered(&model);
                let rank = all.iter().position(|(_, held)| *held == member);
                (format!("ZRANK z {member}"), rank.map_or(Node::Null, count))
            }
            9 => {
                let found = model.values().filter(|&&held| held > score && held <= score + 9);
                (format!("ZCOUNT z ({score} {}", score + 9), count(found.count()))
            }
            10 => {
                let all = ordered(&model);
                let (from, len) = (rng.below(all.len() + 2), rng.below(20));
                let part: Vec<_> = all.iter().skip(from).take(len + 1).cloned().collect();
                (format!("ZRANGE z {from} {} WITHSCORES", from + len), scored_members(&part))
            }
            11 => {
                let mut all = ordered(&model);
                all.retain(|(held, _)| *held <= score);
                all.reverse();
                let part: Vec<_> = all.iter().skip(2).take(5).cloned().collect();
                let line = format!("ZRANGE z {score} -inf BYSCORE REV LIMIT 2 5 WITHSCORES");
                (line, scored_members(&part))
            }
            12 if rng.one_in(100) => {
                let all = ordered(&model);
                model.retain(|member, _| all.iter().skip(50).any(|(_, held)| held == member));
                ("ZREMRANGEBYRANK z 0 49".to_owned(), count(all.len().min(50)))
            }
            _ => ("ZCARD z".to_owned(), count(model.len())),
        };
        let reply = match ours.line(&line) {
            Node::Array(pairs) => scored_members(&pairs.iter().map(scored).collect::<Vec<_>>()),
            other => other,
        };
        assert_eq!(reply, expected, "{line}");
    }
}

/// A pair of member and score.
fn scored(pair: &Node) -> (i32, String) {
    match pair {
        Node::Array(parts) => match parts.as_slice() {
            [Node::Bulk(member), Node::Double(score)] => {
                (score.parse().unwrap(), String::from_utf8(member.clone()).unwrap())
            }
            _ => panic!("{pair:?} is no pair"),
        },
        _ => panic!("{pair:?} is no pair"),
    }
}
