//! One change of one object, as watchers get it, and its frame on the wire, made once and shared by all.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use store::{Key, Revision};

use crate::{Item, Unreadable};

/// What a watch event says happened, from the point of view of one watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object came into view.
    Added,
    /// The object is another one now.
    Modified,
    /// The object went out of view.
    Deleted,
}

impl EventType {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change. At least one of `before`, `after` and `undecodable` is there.
#[derive(Debug)]
pub struct Change {
    /// When it happened.
    pub revision: Revision,
    /// The object before; nothing if it was created.
    pub before: Option<Arc<Item>>,
    /// The object after; nothing if it was removed, or became unreadable.
    pub after: Option<Arc<Item>>,
    /// There if a value came or went that cannot be served: what happened cannot be told.
    pub undecodable: Option<(Key, Unreadable)>,
    frames: [OnceLock<Bytes>; 3],
    /// Frames in other versions than the stored one: at most one per type and version that somebody watches.
    converted: Mutex<Vec<(EventType, Box<str>, Bytes)>>,
}

impl Change {
    /// Nothing, if there was and is nothing to see.
    pub fn new(revision: Revision, before: Option<Arc<Item>>, after: Option<Arc<Item>>) -> Option<Self> {
        let is_visible = before.is_some() || after.is_some();
        is_visible.then(|| Self {
            revision,
            before,
            after,
            undecodable: None,
            frames: Default::default(),
            converted: Mutex::default(),
        })
    }

    /// A value that cannot be served came or went.
    pub(crate) fn undecodable(
        revision: Revision,
        key: Key,
        before: Option<Arc<Item>>,
        why: Unreadable,
    ) -> Self {
        let (frames, converted) = (Default::default(), Mutex::default());
        Self { revision, before, after: None, undecodable: Some((key, why)), frames, converted }
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        match &self.undecodable {
            Some((key, _)) => key,
            None => self.either(EventType::Added).key(),
        }
    }

    /// The event for a watcher that sees every object of the collection.
    pub fn event(&self) -> EventType {
        match (&self.before, &self.after) {
            (Some(_), Some(_)) => EventType::Modified,
            (Some(_), None) => EventType::Deleted,
            (None, _) => EventType::Added,
        }
    }

    /// The object that an event of this type carries: a deletion shows the object as it was before, but
    /// with the resourceVersion of the change.
    pub fn text(&self, event: EventType) -> Bytes {
        let item = self.either(event);
        if item.revision() == self.revision { item.text().clone() } else { item.text_at(self.revision) }
    }

    /// `{"type":"ADDED","object":{…}}` and a line end, in the storage version. Made once per type.
    pub fn frame(&self, event: EventType) -> Bytes {
        let frame = match event {
            EventType::Added => &self.frames[0],
            EventType::Modified => &self.frames[1],
            EventType::Deleted => &self.frames[2],
        };
        frame.get_or_init(|| self.make_frame(event)).clone()
    }

    /// The same in another version, converted by whoever is the first to ask for it.
    pub fn frame_in(&self, event: EventType, version: &str, convert: impl FnOnce(Bytes) -> Bytes) -> Bytes {
        let find = |frames: &Vec<(EventType, Box<str>, Bytes)>| {
            frames.iter().find(|(it, name, _)| *it == event && **name == *version).map(|it| it.2.clone())
        };
        let lock = || self.converted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frame) = find(&lock()) {
            return frame;
        }
        // Not under the lock: two may convert at the same time, nobody waits.
        let frame = wrap(event, &convert(self.text(event)));
        let mut frames = lock();
        if let Some(frame) = find(&frames) {
            return frame;
        }
        frames.push((event, version.into(), frame.clone()));
        frame
    }

    /// What the change costs while it is remembered: the object, and a frame of it.
    pub(crate) fn cost(&self) -> usize {
        let object = self.after.as_ref().or(self.before.as_ref());
        size_of::<Self>() + 2 * object.map_or(0, |it| it.text().len())
    }

    fn make_frame(&self, event: EventType) -> Bytes {
        let item = self.either(event);
        let mut frame = Vec::with_capacity(item.text().len() + 40);
        frame.extend_from_slice(b"{\"type\":\"");
        frame.extend_from_slice(event.as_str().as_bytes());
        frame.extend_from_slice(b"\",\"object\":");
        if item.revision() == self.revision {
            frame.extend_from_slice(item.text());
        } else {
            item.write_at(self.revision, &mut frame);
        }
        frame.extend_from_slice(b"}\n");
        frame.into()
    }

    /// The object before for a deletion and after for anything else, or the only one there is.
    fn either(&self, event: EventType) -> &Arc<Item> {
        let (first, second) = match event {
            EventType::Deleted => (&self.before, &self.after),
            EventType::Added | EventType::Modified => (&self.after, &self.before),
        };
        first.as_ref().or(second.as_ref()).expect("a change must have an object: the constructor checks it")
    }
}

fn wrap(event: EventType, object: &[u8]) -> Bytes {
    let head = format!("{{\"type\":\"{}\",\"object\":", event.as_str());
    [head.as_bytes(), object, b"}\n"].concat().into()
}
