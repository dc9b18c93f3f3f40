//! Lists item by item, so that a long list is never a tree as a whole.

use super::{Value, encode::Encoder};
use crate::model::{Schema, Type, TypeId};

/// Writes a list in its envelope, when all items are known.
pub struct ListEncoder<'a> {
    schema: &'a Schema,
    list: TypeId,
    item: TypeId,
    /// The number of the field `items`.
    number: u32,
    items: Vec<Vec<u8>>,
}

impl<'a> ListEncoder<'a> {
    /// For lists of this type. `None` if it is not a list of objects.
    pub fn new(schema: &'a Schema, list: TypeId) -> Option<Self> {
        let items = schema.object(list)?.field("items")?;
        let Type::List(ty) = schema.get(items.ty) else { return None };
        schema.object(ty.element)?;
        Some(Self { schema, list, item: ty.element, number: items.number, items: Vec::new() })
    }

    /// Adds an item.
    pub fn push(&mut self, item: &Value) {
        let mut encoder = Encoder::new(self.schema);
        encoder.value(self.number, self.item, item);
        self.items.push(encoder.finish());
    }

    /// The list in pieces. The head has everything but the items: `apiVersion`, `kind`, `metadata`.
    pub fn finish(self, head: &Value) -> Vec<Vec<u8>> {
        let text = |name: &str| head.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut encoder = Encoder::new(self.schema);
        let length: usize = self.items.iter().map(Vec::len).sum();
        // Metadata has a lower number than the items.
        let start = encoder.mark();
        if let (Value::Object(map), Some(object)) = (head, self.schema.object(self.list)) {
            encoder.object(map, object);
        }
        encoder.delimit_length(2, encoder.mark() - start + length);
        encoder.envelope_head(text("apiVersion"), text("kind"));
        let mut tail = Encoder::new(self.schema);
        tail.envelope_tail();
        let mut pieces = vec![encoder.finish()];
        pieces.extend(self.items);
        pieces.push(tail.finish());
        pieces
    }
}

impl std::fmt::Debug for ListEncoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListEncoder").field("items", &self.items.len()).finish_non_exhaustive()
    }
}
