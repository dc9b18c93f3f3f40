//! Takes a JSON object apart into its members without looking into them. serde_json checks the grammar.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::Unreadable;

/// A member of an object: its name, unescaped, and its value as written.
#[derive(Debug)]
pub(super) struct Member<'t> {
    pub(super) name: Cow<'t, str>,
    pub(super) value: &'t str,
}

/// The members in the order in which they are written.
pub(super) fn members(text: &str) -> Result<Vec<Member<'_>>, Unreadable> {
    let not_json = |error: serde_json::Error| Unreadable::NotJson(error.column());
    if !text.starts_with('{') {
        // Which of the two it is, without an error that shows a part of the value.
        let any: Result<serde::de::IgnoredAny, _> = serde_json::from_str(text);
        return Err(any.map_or_else(not_json, |_| Unreadable::NotObject));
    }
    let Members(members) = serde_json::from_str(text).map_err(not_json)?;
    Ok(members)
}

/// The value of a member; of several with this name the last counts.
pub(super) fn last<'t>(members: &[Member<'t>], name: &str) -> Option<&'t str> {
    members.iter().rev().find(|it| it.name == name).map(|it| it.value)
}

/// The text that a JSON string stands for; nothing if it is no string.
pub(super) fn text_of(value: &str) -> Option<Cow<'_, str>> {
    let Text(text) = serde_json::from_str(value).ok()?;
    Some(text)
}

/// Where `part`, a part of `text`, begins in it.
pub(super) fn offset(text: &str, part: &str) -> usize {
    let offset = part.as_ptr().addr().checked_sub(text.as_ptr().addr());
    offset.expect("a borrowed part must lie in the text it was taken from")
}

/// A string that is borrowed if it is written without escapes.
struct Text<'t>(Cow<'t, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

struct Members<'t>(Vec<Member<'t>>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push(Member { name, value: value.get() });
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}
