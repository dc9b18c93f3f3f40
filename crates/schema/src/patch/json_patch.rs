//! JSON patches: a list of operations, all of which work or none.
//!
//! Oddities that clients may rely on, because the library behind kube-apiserver has them: negative indices count from
//! the end; `replace` of a field that is not there adds it, `copy` of one copies null, `test` of one for null holds; an
//! operation without `value` has the value null; what stands before the first slash of a path does not matter.
//!
//! **Bounds**: the number of operations, the bytes copied, the depth of the result, and the work done (moving the items
//! of a large array ten thousand times would take minutes).

use super::{MAX_COPIED_BYTES, MAX_OPERATIONS, PatchError};
use crate::{Value, json, json::type_name};

/// Objects and arrays inside each other in the result, at most.
const MAX_DEPTH: usize = 128;

/// Items moved and values visited, at most; less than a second's worth.
const MAX_WORK: usize = 50_000_000;

/// Values that one patch may copy, at most: a copy takes far more memory as a tree than as text.
const MAX_COPIED_VALUES: usize = 250_000;

/// Applies the patch.
pub(super) fn apply(patch: &Value, original: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    let mut document = Document { root: original.clone(), n_copied_bytes: 0, n_copied_values: 0, work: 0 };
    for operation in &operations {
        document.apply(operation)?;
    }
    Ok(document.root)
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: &'a Value,
}

fn operations(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let items = match patch {
        Value::Array(items) => items,
        Value::Null => return Ok(Vec::new()),
        other => return Err(undecodable(other, "value of type []handlers.jsonPatchOp")),
    };
    let operations = items.iter().map(operation).collect::<Result<Vec<_>, _>>()?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    Ok(operations)
}

fn operation(item: &Value) -> Result<Operation<'_>, PatchError> {
    if !item.is_object() && !item.is_null() {
        return Err(undecodable(item, "value of type handlers.jsonPatchOp"));
    }
    let text = |field: &str| match item.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(other) => Err(undecodable(other, &format!("struct field jsonPatchOp.{field} of type string"))),
    };
    Ok(Operation {
        op: text("op")?.unwrap_or("unknown"),
        path: text("path")?,
        from: text("from")?,
        value: item.get("value").unwrap_or(&Value::Null),
    })
}

fn undecodable(value: &Value, what: &str) -> PatchError {
    let name = type_name(value);
    PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {name} into Go {what}"))
}

struct Document {
    root: Value,
    n_copied_bytes: usize,
    n_copied_values: usize,
    work: usize,
}

impl Document {
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let Operation { op, value, .. } = *operation;
        let path = || Pointer::read(op, "path", operation.path);
        let from = || Pointer::read(op, "from", operation.from);
        match op {
            "replace" if operation.path == Some("") => self.replace_root(value),
            "test" if operation.path == Some("") => check(self.root == *value, ""),
            "add" => self.add(&path()?, value.clone()),
            "remove" => self.remove(&path()?).map(drop),
            "replace" => self.replace(&path()?, value),
            "test" => self.test(&path()?, value),
            "move" => {
                let (from, path) = (from()?, path()?);
                let value = self.remove(&from)?;
                // At the same depth or a smaller one the result cannot be too deep.
                if path.parents.len() > from.parents.len() {
                    return self.add(&path, value);
                }
                self.put(&path, value)
            }
            "copy" => self.copy(&from()?, &path()?),
            other => Err(PatchError::Rejected(format!("Unexpected kind: {other}"))),
        }
    }

    fn replace_root(&mut self, value: &Value) -> Result<(), PatchError> {
        if !value.is_object() && !value.is_array() {
            let text = "replace operation value must be object or array";
            return Err(PatchError::Rejected(text.to_owned()));
        }
        self.root = value.clone();
        Ok(())
    }

    fn add(&mut self, path: &Pointer<'_>, value: Value) -> Result<(), PatchError> {
        self.check_depth(path, &value)?;
        self.put(path, value)
    }

    fn put(&mut self, path: &Pointer<'_>, value: Value) -> Result<(), PatchError> {
        let n_moved = match container(&mut self.root, path)? {
            Value::Array(items) => {
                let at = if path.key == "-" { items.len() } else { index(&path.key, items.len() + 1, path)? };
                items.insert(at, value);
                items.len() - at
            }
            Value::Object(map) => {
                map.insert(path.key.clone(), value);
                1
            }
            _ => return Err(path.missing()),
        };
        self.charge(n_moved)
    }

    fn remove(&mut self, path: &Pointer<'_>) -> Result<Value, PatchError> {
        let (value, n_moved) = match container(&mut self.root, path)? {
            Value::Array(items) => {
                let at = index(&path.key, items.len(), path)?;
                (items.remove(at), items.len() - at)
            }
            Value::Object(map) => (map.remove(&path.key).ok_or_else(|| path.missing())?, 1),
            _ => return Err(path.missing()),
        };
        self.charge(n_moved)?;
        Ok(value)
    }

    fn replace(&mut self, path: &Pointer<'_>, value: &Value) -> Result<(), PatchError> {
        self.check_depth(path, value)?;
        match container(&mut self.root, path)? {
            Value::Array(items) => {
                let at = index(&path.key, items.len(), path)?;
                items[at] = value.clone();
            }
            Value::Object(map) => {
                map.insert(path.key.clone(), value.clone());
            }
            _ => return Err(path.missing()),
        }
        self.charge(1)
    }

    fn test(&mut self, path: &Pointer<'_>, value: &Value) -> Result<(), PatchError> {
        let found = self.get(path)?;
        // Comparing ends with the smaller of the two, and the patch is not large.
        check(found.unwrap_or(&Value::Null) == value, path.text)
    }

    fn copy(&mut self, from: &Pointer<'_>, path: &Pointer<'_>) -> Result<(), PatchError> {
        let value = self.get(from)?;
        let (n_bytes, n_values) = value.map_or((0, 0), |it| (json::to_vec(it).len(), measure(it).1));
        let copied = value.cloned().unwrap_or_default();
        self.n_copied_bytes += n_bytes;
        self.n_copied_values += n_values;
        if self.n_copied_bytes > MAX_COPIED_BYTES {
            return Err(PatchError::Rejected(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit \
                 {MAX_COPIED_BYTES}",
                self.n_copied_bytes
            )));
        }
        if self.n_copied_values > MAX_COPIED_VALUES {
            return Err(PatchError::TooExpensive("the patch copies too many values"));
        }
        self.add(path, copied)
    }

    /// The value at the path; `None` if an object does not have it.
    fn get(&mut self, path: &Pointer<'_>) -> Result<Option<&Value>, PatchError> {
        match container(&mut self.root, path)? {
            Value::Array(items) => {
                let at = index(&path.key, items.len(), path)?;
                Ok(items.get(at))
            }
            Value::Object(map) => Ok(map.get(&path.key)),
            _ => Err(path.missing()),
        }
    }

    fn check_depth(&mut self, path: &Pointer<'_>, value: &Value) -> Result<(), PatchError> {
        let (depth, n_values) = measure(value);
        self.charge(n_values)?;
        if path.parents.len() + 1 + depth > MAX_DEPTH {
            return Err(PatchError::TooExpensive("the patch nests values too deeply"));
        }
        Ok(())
    }

    fn charge(&mut self, work: usize) -> Result<(), PatchError> {
        self.work = self.work.saturating_add(work);
        if self.work > MAX_WORK {
            Err(PatchError::TooExpensive("the patch moves too many values"))
        } else {
            Ok(())
        }
    }
}

/// Where an operation works: the way to an object or array, and what is meant in it.
struct Pointer<'a> {
    op: &'a str,
    text: &'a str,
    parents: Vec<String>,
    key: String,
}

impl<'a> Pointer<'a> {
    fn read(op: &'a str, field: &str, text: Option<&'a str>) -> Result<Self, PatchError> {
        let text = text.ok_or_else(|| {
            PatchError::Rejected(format!("{op} operation failed to decode {field}: missing value"))
        })?;
        let mut pointer = Self { op, text, parents: Vec::new(), key: String::new() };
        // No document is this deep, so the way leads nowhere.
        if text.split('/').nth(MAX_DEPTH + 1).is_some() {
            return Err(pointer.missing());
        }
        pointer.parents = text.split('/').skip(1).map(unescape).collect();
        pointer.key = pointer.parents.pop().ok_or_else(|| pointer.missing())?;
        Ok(pointer)
    }

    fn missing(&self) -> PatchError {
        PatchError::Rejected(format!(
            "{} operation does not apply: doc is missing path: \"{}\"",
            self.op, self.text
        ))
    }
}

fn unescape(segment: &str) -> String {
    // In this order `~01` stays `~1`.
    segment.replace("~1", "/").replace("~0", "~")
}

/// The object or array that the last segment is about.
fn container<'v>(root: &'v mut Value, path: &Pointer<'_>) -> Result<&'v mut Value, PatchError> {
    let mut current = root;
    for segment in &path.parents {
        current = match current {
            Value::Object(map) => map.get_mut(segment).ok_or_else(|| path.missing())?,
            Value::Array(items) => {
                let at = index(segment, items.len(), path)?;
                &mut items[at]
            }
            _ => return Err(path.missing()),
        };
    }
    Ok(current)
}

/// An index below `len`; negative ones count from the end.
fn index(text: &str, len: usize, path: &Pointer<'_>) -> Result<usize, PatchError> {
    let number: i64 = text.parse().map_err(|_| {
        PatchError::Rejected(format!("error in {} for path: '{}': no index: '{text}'", path.op, path.text))
    })?;
    let at = if number < 0 {
        usize::try_from(number.unsigned_abs()).ok().and_then(|it| len.checked_sub(it))
    } else {
        usize::try_from(number).ok().filter(|it| *it < len)
    };
    at.ok_or_else(|| {
        PatchError::Rejected(format!("Unable to access invalid index: {number}: invalid index referenced"))
    })
}

fn check(holds: bool, path: &str) -> Result<(), PatchError> {
    if holds {
        Ok(())
    } else {
        Err(PatchError::Rejected(format!("testing value {path} failed: test failed")))
    }
}

/// How deep a value is (a scalar is 0), and how many values it consists of.
fn measure(value: &Value) -> (usize, usize) {
    let add = |(depth, n): (usize, usize), it: &Value| {
        let inner = measure(it);
        (depth.max(inner.0), n + inner.1)
    };
    match value {
        Value::Array(items) => {
            let (depth, n) = items.iter().fold((0, 1), add);
            (depth + 1, n)
        }
        Value::Object(map) => {
            let (depth, n) = map.values().fold((0, 1), add);
            (depth + 1, n)
        }
        _ => (0, 1),
    }
}
