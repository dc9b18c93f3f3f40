//! Reads `data/schemas.txt`, the shipped table of types, without interpreting it.
//!
//! One line per fact, words separated by single spaces, an indented line being a field of the last `type`:
//!
//! ```text
//! package ALIAS FULL-NAME GROUP|- VERSION|-
//! type NAME [kind] [atomic]
//!  FIELD NUMBER TYPE [inline] [set] [keys=A,B] [atomic] [merge[=KEY]] [retain] [replace] [required] [pointer] [always] [go=TYPE] [default=JSON] [since=MINOR] [until=MINOR]
//! any NAME
//! wrapped NAME TYPE
//! ```
//!
//! `TYPE` is a scalar (`string`, `int32`, `quantity` …), a type of the same package (`Container`), one of another
//! (`meta/v1.ObjectMeta`), or a list (`[]TYPE`) or map (`{}TYPE`) of those. `NUMBER` is protobuf's, 0 where it has none.
//! `inline` marks a message whose fields JSON shows as those of the type. `set`, `keys` and `atomic` say what
//! server-side apply owns, `merge`, `retain` and `replace` what a strategic merge patch does. `pointer` and
//! `always` say when Go writes a field that holds nothing, `go` what its decoder calls the type. A field exists in the
//! releases from 1.`since` to 1.`until`. `any` is JSON of any shape, `wrapped` a list that protobuf puts into a message.

/// One line that is not indented, with the fields below it.
#[derive(Debug)]
pub(super) struct TypeRow<'a> {
    pub(super) package: Package<'a>,
    pub(super) name: &'a str,
    pub(super) shape: Shape<'a>,
}

/// What a type is.
#[derive(Debug)]
pub(super) enum Shape<'a> {
    Object { is_kind: bool, is_atomic: bool, fields: Vec<FieldRow<'a>> },
    Any,
    Wrapped(&'a str),
}

/// Where types live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Package<'a> {
    pub(super) alias: &'a str,
    pub(super) name: &'a str,
    /// Empty for the core group.
    pub(super) group: &'a str,
    pub(super) version: &'a str,
}

/// One field.
#[derive(Debug)]
pub(super) struct FieldRow<'a> {
    pub(super) name: &'a str,
    pub(super) number: u32,
    pub(super) ty: &'a str,
    pub(super) is_inline: bool,
    pub(super) is_set: bool,
    pub(super) keys: Option<&'a str>,
    pub(super) is_atomic: bool,
    pub(super) is_merged: bool,
    pub(super) merge_key: Option<&'a str>,
    pub(super) retains_keys: bool,
    pub(super) is_replaced: bool,
    pub(super) is_required: bool,
    pub(super) is_always: bool,
    pub(super) go_type: Option<&'a str>,
    pub(super) is_pointer: bool,
    pub(super) default: Option<&'a str>,
    pub(super) since: u16,
    pub(super) until: u16,
}

/// The line that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("line {0} of the table of types cannot be read")]
pub(super) struct TableError(usize);

/// Reads the table.
pub(super) fn parse(text: &str) -> Result<Vec<TypeRow<'_>>, TableError> {
    let mut types = Vec::with_capacity(1024);
    let mut package = None;
    for (number, line) in text.lines().enumerate() {
        if !line.is_empty() && !line.starts_with('#') {
            read_line(line, &mut package, &mut types).ok_or(TableError(number + 1))?;
        }
    }
    Ok(types)
}

fn read_line<'a>(
    line: &'a str,
    package: &mut Option<Package<'a>>,
    types: &mut Vec<TypeRow<'a>>,
) -> Option<()> {
    if let Some(field) = line.strip_prefix(' ') {
        let Shape::Object { fields, .. } = &mut types.last_mut()?.shape else { return None };
        fields.push(read_field(&mut field.split(' '))?);
        return Some(());
    }
    let words = &mut line.split(' ');
    match words.next()? {
        "package" => {
            let (alias, name) = (words.next()?, words.next()?);
            let mut dashed = || words.next().map(|it| if it == "-" { "" } else { it });
            *package = Some(Package { alias, name, group: dashed()?, version: dashed()? });
        }
        shape => {
            let name = words.next()?;
            let shape = match shape {
                "type" => read_type(words)?,
                "any" => Shape::Any,
                "wrapped" => Shape::Wrapped(words.next()?),
                _ => return None,
            };
            types.push(TypeRow { package: (*package)?, name, shape });
        }
    }
    words.next().is_none().then_some(())
}

fn read_type<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Shape<'a>> {
    let (mut is_kind, mut is_atomic) = (false, false);
    for word in words {
        match word {
            "kind" => is_kind = true,
            "atomic" => is_atomic = true,
            _ => return None,
        }
    }
    Some(Shape::Object { is_kind, is_atomic, fields: Vec::new() })
}

fn read_field<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<FieldRow<'a>> {
    let mut row = FieldRow {
        name: words.next()?,
        number: words.next()?.parse().ok()?,
        ty: words.next()?,
        is_inline: false,
        is_set: false,
        keys: None,
        is_atomic: false,
        is_merged: false,
        merge_key: None,
        retains_keys: false,
        is_replaced: false,
        is_required: false,
        is_always: false,
        go_type: None,
        is_pointer: false,
        default: None,
        since: 0,
        until: u16::MAX,
    };
    for word in words {
        match word.split_once('=') {
            None => match word {
                "inline" => row.is_inline = true,
                "set" => row.is_set = true,
                "atomic" => row.is_atomic = true,
                "merge" => row.is_merged = true,
                "retain" => row.retains_keys = true,
                "replace" => row.is_replaced = true,
                "required" => row.is_required = true,
                "always" => row.is_always = true,
                "pointer" => row.is_pointer = true,
                _ => return None,
            },
            Some(("keys", keys)) => row.keys = Some(keys),
            Some(("merge", key)) => (row.is_merged, row.merge_key) = (true, Some(key)),
            Some(("go", ty)) => row.go_type = Some(ty),
            Some(("default", json)) => row.default = Some(json),
            Some(("since", minor)) => row.since = minor.parse().ok()?,
            Some(("until", minor)) => row.until = minor.parse().ok()?,
            Some(_) => return None,
        }
    }
    Some(row)
}
