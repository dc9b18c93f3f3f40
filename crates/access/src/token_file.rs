//! `--token-auth-file`: static tokens, one line each: `token,user,uid,"group1,group2"`.
//!
//! Tokens are kept and looked up by their SHA-256, so that a lookup's time says nothing about the tokens.
//! Deliberately not here: reading the file.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::User;

/// The largest file that is read.
pub const MAX_BYTES: usize = 4 << 20;

/// The users by the hash of their token.
#[derive(Clone, Default)]
pub struct TokenFile {
    users: HashMap<[u8; 32], Arc<User>>,
    warnings: Vec<String>,
}

/// Why a token file cannot be used. Tokens never appear in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    #[error(
        "token file must have at least 3 columns (token, user name, user uid), found {found} in line {line}"
    )]
    Columns { line: usize, found: usize },
    #[error("record on line {line}: {problem}")]
    Syntax { line: usize, problem: &'static str },
    #[error("token file is larger than {MAX_BYTES} bytes")]
    TooLarge,
}

impl TokenFile {
    /// Reads the CSV text.
    pub fn parse(csv: &str) -> Result<Self, TokenFileError> {
        if csv.len() > MAX_BYTES {
            return Err(TokenFileError::TooLarge);
        }
        let mut file = Self::default();
        for (line, fields) in records(csv)? {
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(TokenFileError::Columns { line, found: fields.len() });
            };
            if token.is_empty() {
                file.warnings.push(format!("empty token has been found in token file, line {line}"));
                continue;
            }
            let groups =
                rest.first().map(|it| it.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let mut user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
            user.groups.retain(|it| !it.is_empty());
            user.add_authenticated_group();
            if file.users.insert(hash(token), Arc::new(user)).is_some() {
                file.warnings.push(format!("duplicate token has been found in token file, line {line}"));
            }
        }
        Ok(file)
    }

    /// Whose token this is.
    pub fn lookup(&self, token: &str) -> Option<Arc<User>> {
        let wanted = hash(token);
        let (found, user) = self.users.get_key_value(&wanted)?;
        bool::from(found.ct_eq(&wanted)).then(|| Arc::clone(user))
    }

    /// What should be told to the operator: lines that have no effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("tokens", &self.users.len()).finish_non_exhaustive()
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// The records of a CSV text with the line each begins on: quoted fields, doubled quotes, blank lines skipped.
fn records(csv: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut records = Vec::new();
    let mut rest = csv;
    let mut line = 1;
    while !rest.is_empty() {
        let begins = line;
        let mut fields = Vec::new();
        loop {
            let (field, after, n_lines) = field(rest, line)?;
            line += n_lines;
            fields.push(field);
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n')).unwrap_or("");
                    line += 1;
                    break;
                }
            }
        }
        if fields != [""] {
            records.push((begins, fields));
        }
    }
    Ok(records)
}

/// One field, what follows it (a comma, a line's end, or nothing), and how many line ends it contains.
fn field(text: &str, line: usize) -> Result<(String, &str, usize), TokenFileError> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (field, after) = text.split_at(end);
        let (field, after) = match field.strip_suffix('\r') {
            Some(field) if after.starts_with('\n') || after.is_empty() => (field, after),
            _ => (field, after),
        };
        if field.contains('"') {
            return Err(TokenFileError::Syntax { line, problem: "bare \" in non-quoted field" });
        }
        return Ok((field.to_owned(), after, 0));
    };
    let mut value = String::new();
    loop {
        let end = rest
            .find('"')
            .ok_or(TokenFileError::Syntax { line, problem: "extraneous or missing \" in quoted-field" })?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                value.push('"');
                rest = next;
            }
            None if rest.is_empty() || rest.starts_with([',', '\n']) || rest.starts_with("\r\n") => {
                let n_lines = value.matches('\n').count();
                return Ok((value, rest, n_lines));
            }
            None => {
                return Err(TokenFileError::Syntax {
                    line,
                    problem: "extraneous or missing \" in quoted-field",
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_and_groups_are_read() {
        let file = TokenFile::parse("t1,alice,1\r\n\nt2,bob,2,\"dev,ops\"\n\"a\"\"b\",carol,3,one").unwrap();
        assert_eq!(file.len(), 3);
        let user =
            |token| file.lookup(token).map(|it| (it.name.clone(), it.uid.clone(), it.groups.join(" ")));
        let is =
            |name: &str, uid: &str, groups: &str| Some((name.to_owned(), uid.to_owned(), groups.to_owned()));
        assert_eq!(user("t1"), is("alice", "1", "system:authenticated"));
        assert_eq!(user("t2"), is("bob", "2", "dev ops system:authenticated"));
        assert_eq!(user("a\"b"), is("carol", "3", "one system:authenticated"));
        assert_eq!(user("t"), None);
        assert_eq!(user(""), None);
        assert!(!format!("{file:?}").contains("t1"));
    }

    #[test]
    fn odd_lines_are_refused_or_reported() {
        let error = |csv: &str| TokenFile::parse(csv).unwrap_err().to_string();
        assert!(
            error("t1,alice,1\nt2,bob").contains("at least 3 columns (token, user name, user uid), found 2")
        );
        assert!(error("t\"1,alice,1").contains("bare \""));
        assert!(error("\"t1,alice,1").contains("missing \""));
        let file = TokenFile::parse(",x,1\nt,a,1\nt,b,2").unwrap();
        assert_eq!(file.warnings().len(), 2);
        assert_eq!(file.lookup("t").unwrap().name, "b");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a,\"\n\r ]{0,40}") {
            let _ = TokenFile::parse(&text);
        }
    }
}
