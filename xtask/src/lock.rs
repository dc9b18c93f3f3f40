//! What a `Cargo.lock` pins.

/// One crate of a lock file.
#[derive(Debug, PartialEq)]
pub struct Locked {
    pub name: String,
    pub version: String,
    /// Where it comes from; none for our own.
    pub source: Option<String>,
    /// The SHA-256 sum of its package.
    pub checksum: Option<String>,
}

/// All crates of a lock file.
pub fn parse(lock: &str) -> Vec<Locked> {
    lock.split("[[package]]").skip(1).filter_map(locked).collect()
}

fn locked(block: &str) -> Option<Locked> {
    let value = |key: &str| {
        let found = block.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(found.trim_end_matches('"').to_owned())
    };
    Some(Locked {
        name: value("name")?,
        version: value("version")?,
        source: value("source"),
        checksum: value("checksum"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_have_a_source_and_a_sum() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"00\"\n\n\
                    [[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        let found = parse(text);
        assert_eq!(found[0].source.as_deref().zip(found[0].checksum.as_deref()), Some(("x", "00")));
        assert_eq!((found[1].name.as_str(), &found[1].source, found.len()), ("own", &None, 2));
    }
}
