//! Unknown and duplicate fields in the order in which they stand in a text, as Go's strict decoder reports them.
//!
//! The tree has no order and no duplicates any more, so this walks the text. Only texts about which there is something
//! to say are walked: see [`crate::json::ParseReport`] and [`super::Checked`].

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{MAX_REPORTED, duplicate_field, unknown_field};
use crate::model::{Schema, Type, TypeId};

/// `unknown field "a"` and `duplicate field "b"`, each once and at most [`MAX_REPORTED`].
/// A text that is no JSON has none.
pub fn strict_errors(schema: &Schema, ty: TypeId, text: &[u8]) -> Vec<String> {
    let mut found = Found { path: String::new(), errors: Vec::new(), seen: HashSet::new() };
    let walk = Walk { schema, ty, found: &mut found };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    if walk.deserialize(&mut deserializer).is_err() {
        // Bytes that are no UTF-8, which our reader forgives. What was found before them counts.
        return found.errors;
    }
    found.errors
}

struct Found {
    path: String,
    errors: Vec<String>,
    seen: HashSet<String>,
}

impl Found {
    fn add(&mut self, error: String) {
        if self.errors.len() < MAX_REPORTED && self.seen.insert(error.clone()) {
            self.errors.push(error);
        }
    }

    fn enter(&mut self, key: &str) -> usize {
        let end = self.path.len();
        if end > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        end
    }
}

struct Walk<'a, 'b> {
    schema: &'a Schema,
    ty: TypeId,
    found: &'b mut Found,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.schema.get(self.ty) {
            Type::Any | Type::Scalar(_) => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
            Type::Object(_) | Type::Map(_) | Type::List(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Walk { schema, ty, found } = self;
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let end = found.enter(&key);
            let inner = match schema.get(ty) {
                Type::Object(object) => match object.field(&key) {
                    Some(field) if field.is_known => Some(field.ty),
                    Some(_) | None => {
                        if !object.keeps_unknown {
                            found.add(unknown_field(&found.path));
                        }
                        None
                    }
                },
                Type::Map(map) => Some(map.value),
                Type::List(_) | Type::Scalar(_) | Type::Any => None,
            };
            match inner {
                Some(ty) => {
                    if seen.contains(&key) {
                        found.add(duplicate_field(&found.path));
                    }
                    map.next_value_seed(Walk { schema, ty, found: &mut *found })?;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            found.path.truncate(end);
            seen.insert(key);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Walk { schema, ty, found } = self;
        let Type::List(list) = schema.get(ty) else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let end = found.path.len();
        for index in 0_usize.. {
            found.path.push_str(&format!("[{index}]"));
            let walk = Walk { schema, ty: list.element, found: &mut *found };
            let is_there = items.next_element_seed(walk)?.is_some();
            found.path.truncate(end);
            if !is_there {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
