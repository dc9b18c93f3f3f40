//! One event of a watch as a line of JSON, which shares the memory of the cached object where that is large.

use bytes::Bytes;
use cache::{EventType, Item};

use crate::{Target, serve};

/// Objects from this size on are not copied into their line.
const LARGE: usize = 16 << 10;

/// One event: a line of JSON in one piece, or an object with what stands before and behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    before: Bytes,
    object: Bytes,
    behind: Bytes,
}

impl Line {
    /// A line that is there as a whole.
    pub fn whole(line: Bytes) -> Self {
        Self { before: line, object: Bytes::new(), behind: Bytes::new() }
    }

    /// ADDED, with the object in the client's version.
    pub(super) fn added(target: &Target, item: &Item) -> Self {
        let before = format!("{{\"type\":\"{}\",\"object\":", EventType::Added.as_str());
        let is_shared = item.text().len() >= LARGE;
        if is_shared && !serve::is_stored_as(target, item) && serve::is_spliced(target, item) {
            let head = serve::head(&target.group_version, &target.kind.definition.kind);
            return Self::around(before + &head, item.body());
        }
        let object = serve::object(target, item);
        if is_shared {
            return Self::around(before, object);
        }
        Self::whole([before.as_bytes(), &object, b"}\n"].concat().into())
    }

    /// The bytes of all pieces.
    pub fn len(&self) -> usize {
        self.before.len() + self.object.len() + self.behind.len()
    }

    /// Never, but it is asked for beside `len`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The line in one piece. Copies, unless it is in one.
    pub fn into_whole(self) -> Bytes {
        if self.object.is_empty() {
            return self.before;
        }
        [&*self.before, &*self.object, &*self.behind].concat().into()
    }

    /// The pieces of the line, in order, without copying. All but the first may be empty.
    pub fn into_pieces(self) -> [Bytes; 3] {
        [self.before, self.object, self.behind]
    }

    fn around(before: String, object: Bytes) -> Self {
        Self { before: before.into(), object, behind: Bytes::from_static(b"}\n") }
    }
}
