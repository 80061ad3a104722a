//! Reading a map whose keys may belong to the section around it: other tools write `load_method` into
//! `config`.
//!
//! Invariant: an error in a key or value keeps its position, since both are read where they are.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{
    DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, Visitor,
    value::StringDeserializer,
};

/// Values that were put aside, by key.
pub(super) type Values = serde_json::Map<String, serde_json::Value>;

/// Reads a map by another seed, without the keys that are put aside.
pub(super) struct Aside<'a, S> {
    pub(super) seed: S,
    pub(super) keys: &'static [&'static str],
    pub(super) values: &'a mut Values,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Aside<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        let Self { seed, keys, values } = self;
        if keys.is_empty() {
            return seed.deserialize(from);
        }
        seed.deserialize(Filter { inner: from, keys, values })
    }
}

/// A deserializer, visitor or map without these keys.
struct Filter<'a, T> {
    inner: T,
    keys: &'static [&'static str],
    values: &'a mut Values,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Filter<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let Self { inner, keys, values } = self;
        inner.deserialize_map(Filter { inner: visitor, keys, values })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Filter<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { inner, keys, values } = self;
        inner.visit_map(Filter { inner: map, keys, values })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Filter<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        loop {
            let Some(own) = seed.take() else { return Ok(None) };
            let key = self.inner.next_key_seed(Key { seed: own, keys: self.keys })?;
            match key {
                None => return Ok(None),
                Some(MapKey::Own(key)) => return Ok(Some(key)),
                Some(MapKey::Aside(key, own)) => {
                    let value = self.inner.next_value()?;
                    if self.values.insert(key.clone(), value).is_some() {
                        let twice = format_args!("duplicate field `{key}`");
                        return Err(serde::de::Error::custom(twice));
                    }
                    seed = Some(own);
                }
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

/// Reads a key.
struct Key<K> {
    seed: K,
    keys: &'static [&'static str],
}

/// A key of the map, or one that is put aside.
enum MapKey<K, V> {
    Own(V),
    Aside(String, K),
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<K> {
    type Value = MapKey<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(from)?;
        if self.keys.contains(&key.as_str()) {
            return Ok(MapKey::Aside(key, self.seed));
        }
        let key: StringDeserializer<D::Error> = key.into_deserializer();
        self.seed.deserialize(key).map(MapKey::Own)
    }
}
