//! Judges every answer that a client got while servers came and went.
//!
//! It is told which releases were members, and when; when a connection could not but break; and what each release
//! serves. It knows nothing of how the servers do it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// Group, version and resource.
pub type Gvr = (String, String, String);

/// What a client heard.
#[derive(Debug, Clone)]
pub struct Said {
    pub code: u16,
    pub has_retry_after: bool,
    pub body: Value,
}

/// What was asked, by whom and since when.
pub struct Asked<'a> {
    pub who: &'a str,
    pub what: String,
    pub gvr: Option<&'a Gvr>,
    pub since: Instant,
}

/// What became of a request.
#[derive(Debug)]
pub enum Verdict {
    /// An answer that means what it says.
    Answered(Said),
    /// The resource is not there, and need not be.
    Absent,
    /// It may have happened or not.
    Unknown,
}

#[derive(Debug, Default)]
pub struct Logbook {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    offers: BTreeMap<u16, BTreeSet<Gvr>>,
    stays: BTreeMap<usize, Vec<Stay>>,
    rough: Vec<(Instant, Option<Instant>)>,
    faults: Vec<String>,
    counts: BTreeMap<(String, &'static str), u64>,
    /// What each client has read.
    read: BTreeMap<String, BTreeSet<Gvr>>,
}

#[derive(Debug, Clone, Copy)]
struct Stay {
    minor: u16,
    from: Instant,
    until: Option<Instant>,
}

/// What a broken connection may take to be noticed by whoever uses it next.
const ECHO: Duration = Duration::from_millis(500);

/// How long a server may take from being told to stop to the end of its listener.
const STOPPING: Duration = Duration::from_secs(1);

/// When what a new member serves is in everybody's discovery, on a busy machine.
const SETTLED: Duration = Duration::from_secs(3);

impl Logbook {
    pub fn offers(&self, minor: u16, offer: BTreeSet<Gvr>) {
        self.inner.lock().offers.insert(minor, offer);
    }

    pub fn knows(&self, minor: u16) -> bool {
        self.inner.lock().offers.contains_key(&minor)
    }

    /// A server is a member and stays one.
    pub fn came(&self, server: usize, minor: u16) {
        let stay = Stay { minor, from: Instant::now(), until: None };
        self.inner.lock().stays.entry(server).or_default().push(stay);
    }

    /// A server is about to be stopped.
    pub fn goes(&self, server: usize) {
        if let Some(stay) = self.inner.lock().stays.get_mut(&server).and_then(|it| it.last_mut()) {
            stay.until = Some(Instant::now());
        }
    }

    /// From now on connections may break.
    pub fn rough(&self) {
        self.inner.lock().rough.push((Instant::now(), None));
    }

    /// From now on no more than have broken already.
    pub fn calm(&self) {
        for span in &mut self.inner.lock().rough {
            span.1.get_or_insert(Instant::now() + ECHO);
        }
    }

    pub fn fault(&self, text: String) {
        self.inner.lock().faults.push(text);
    }

    pub fn faults(&self) -> Vec<String> {
        self.inner.lock().faults.clone()
    }

    pub fn counts(&self) -> BTreeMap<(String, &'static str), u64> {
        self.inner.lock().counts.clone()
    }

    /// What a release serves and somebody has never read.
    pub fn unread(&self, who: &str, minor: u16) -> Vec<Gvr> {
        let inner = self.inner.lock();
        let is_read = |it: &&Gvr| inner.read.get(who).is_some_and(|read| read.contains(*it));
        inner.offers.get(&minor).into_iter().flatten().filter(|it| !is_read(it)).cloned().collect()
    }

    pub fn has_read(&self, who: &str, gvr: &Gvr) {
        self.inner.lock().read.entry(who.to_owned()).or_default().insert(gvr.clone());
    }

    /// Whether a connection may have broken since then without anybody's fault.
    pub fn was_rough(&self, since: Instant) -> bool {
        let now = Instant::now();
        self.inner.lock().rough.iter().any(|(from, until)| *from <= now && until.is_none_or(|it| it >= since))
    }

    /// Whether a connection did not come about because a server was just being stopped: the system accepts connections
    /// for a listener until it is closed, and drops those that nobody took. Nothing was sent over them.
    pub fn was_turned_away(&self, error: &str, since: Instant) -> bool {
        let is_connect = ["(Connect)", "handshake", "SSLEOFError", "reset by peer"];
        let inner = self.inner.lock();
        let mut ends = inner.stays.values().flatten().filter_map(|it| it.until);
        is_connect.iter().any(|it| error.contains(it)) && ends.any(|it| it + STOPPING >= since)
    }

    /// Whether a server that has it was a member all the time since then.
    fn was_served(&self, gvr: &Gvr, since: Instant) -> Option<u16> {
        let inner = self.inner.lock();
        let offers = |minor: &u16| inner.offers.get(minor).is_some_and(|it| it.contains(gvr));
        let mut stays = inner.stays.values().flatten();
        stays.find(|it| it.from <= since && it.until.is_none() && offers(&it.minor)).map(|it| it.minor)
    }

    /// What discovery must show to whoever asked then: that of members of some seconds, who are still there.
    pub fn settled(&self, since: Instant) -> BTreeSet<Gvr> {
        let inner = self.inner.lock();
        let stays = inner.stays.values().flatten();
        let known = stays.filter(|it| it.from + SETTLED <= since && it.until.is_none());
        known.filter_map(|it| inner.offers.get(&it.minor)).flatten().cloned().collect()
    }

    /// Whether nobody came or went since then, nor shortly before.
    pub fn was_quiet(&self, since: Instant) -> bool {
        let inner = self.inner.lock();
        let mut stays = inner.stays.values().flatten();
        stays.all(|it| it.from + SETTLED <= since && it.until.is_none_or(|it| it + SETTLED <= since))
    }

    /// Counts something that was judged elsewhere.
    pub fn count(&self, who: &str, what: &'static str) {
        *self.inner.lock().counts.entry((who.to_owned(), what)).or_default() += 1;
    }

    /// Judges one answer.
    pub fn judge(&self, asked: &Asked<'_>, said: anyhow::Result<Said>) -> Verdict {
        let Asked { who, what, gvr, since } = asked;
        let took = since.elapsed();
        let (count, verdict) = match said {
            Err(error) => {
                let text = format!("{error:#}");
                if self.was_rough(*since) {
                    ("broken", Verdict::Unknown)
                } else if self.was_turned_away(&text, *since) {
                    ("turned away", Verdict::Unknown)
                } else {
                    self.fault(format!("{who}: {what}: broke off after {took:?}: {text}"));
                    ("broken", Verdict::Unknown)
                }
            }
            Ok(said) if said.code >= 500 || said.code == 429 => {
                if !(said.has_retry_after && matches!(said.code, 503 | 429)) {
                    self.fault(format!("{who}: {what}: {} after {took:?}: {}", said.code, said.body));
                }
                ("put off", Verdict::Unknown)
            }
            Ok(said) if said.code == 404 && is_about_the_resource(&said.body) => {
                if let Some(minor) = gvr.and_then(|it| self.was_served(it, *since)) {
                    self.fault(format!(
                        "{who}: {what}: denied although 1.{minor} was there: {} ({took:?})",
                        said.body
                    ));
                }
                ("absent", Verdict::Absent)
            }
            Ok(said) => ("answered", Verdict::Answered(said)),
        };
        self.count(who, count);
        verdict
    }
}

/// A 404 that names no object says that there is no such resource.
fn is_about_the_resource(body: &Value) -> bool {
    body["details"]["name"].as_str().is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16, has_retry_after: bool) -> anyhow::Result<Said> {
        Ok(Said { code, has_retry_after, body: Value::Null })
    }

    fn faults(logbook: &Logbook, since: Instant, said: anyhow::Result<Said>) -> usize {
        let gvr = ("g".to_owned(), "v".to_owned(), "r".to_owned());
        let before = logbook.faults().len();
        logbook.judge(&Asked { who: "me", what: "it".to_owned(), gvr: Some(&gvr), since }, said);
        logbook.faults().len() - before
    }

    #[tokio::test]
    async fn a_404_is_a_fault_only_while_somebody_serves_it_all_the_time() {
        let logbook = Logbook::default();
        logbook.offers(36, [("g".to_owned(), "v".to_owned(), "r".to_owned())].into());
        logbook.came(1, 34);
        let early = Instant::now();
        tokio::time::sleep(Duration::from_millis(2)).await;
        logbook.came(0, 36);
        let late = Instant::now();
        assert_eq!(
            (faults(&logbook, early, said(404, false)), faults(&logbook, late, said(404, false))),
            (0, 1)
        );
        logbook.goes(0);
        assert_eq!(faults(&logbook, late, said(404, false)), 0);
    }

    #[tokio::test]
    async fn refusals_need_a_retry_after_and_breaks_a_reason() {
        let logbook = Logbook::default();
        let now = Instant::now();
        assert_eq!(faults(&logbook, now, said(503, true)), 0);
        assert_eq!(faults(&logbook, now, said(503, false)), 1);
        assert_eq!(faults(&logbook, now, said(500, true)), 1);
        let broken = || Err(anyhow::anyhow!("broken"));
        assert_eq!(faults(&logbook, now, broken()), 1);
        // A connection that was never one is excused by a server that stops; one that was is not.
        let turned_away = || Err(anyhow::anyhow!("client error (Connect): tls handshake eof"));
        assert_eq!(faults(&logbook, now, turned_away()), 1);
        logbook.came(0, 36);
        logbook.goes(0);
        assert_eq!((faults(&logbook, now, turned_away()), faults(&logbook, now, broken())), (0, 1));
        logbook.rough();
        assert_eq!(faults(&logbook, now, broken()), 0);
        logbook.calm();
        tokio::time::sleep(ECHO + Duration::from_millis(2)).await;
        assert_eq!(faults(&logbook, Instant::now(), broken()), 1);
    }
}
