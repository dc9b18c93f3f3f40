//! `/healthz`, `/livez` and `/readyz`, in upstream's words.
//!
//! Responsible for: the named checks and the text that they make.
//! Deliberately not here: HTTP (the caller puts code and text on the wire with [`HEADERS`]), and who may ask.
//! Start reading at [`Checks`].

use std::{
    fmt::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::RwLock;

use crate::{
    lifecycle::{Lifecycle, Phase},
    metrics::Metrics,
};

/// The headers of every answer.
pub const HEADERS: [(&str, &str); 2] =
    [("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff")];

/// Which of the three endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The old one; everything but readiness.
    Healthz,
    /// Whether a restart would help.
    Livez,
    /// Whether requests should be sent here.
    Readyz,
}

impl Endpoint {
    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

const SHUTDOWN: &str = "shutdown";

/// Where a check counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// At all three endpoints.
    Everywhere,
    /// At `/readyz` alone.
    Readiness,
    /// At `/healthz` and `/readyz`. `/livez` runs it, so that its result is counted there too, and passes whatever it is:
    /// a restart would not help.
    Health,
}

/// The checks of one server, in the order in which they were added; `shutdown` is the last.
pub struct Checks {
    checks: RwLock<Vec<Check>>,
    metrics: Arc<Metrics>,
}

struct Check {
    name: &'static str,
    scope: Scope,
    run: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// A part of the start that is done once; its check passes from then on.
#[derive(Clone, Debug)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// It is done.
    pub fn done(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Checks {
    /// The checks that every server has: `ping` and `log` everywhere, `shutdown` for readiness.
    pub fn new(lifecycle: Lifecycle, metrics: Arc<Metrics>) -> Self {
        let checks = Self { checks: RwLock::default(), metrics };
        checks.add("ping", Scope::Everywhere, || Ok(()));
        checks.add("log", Scope::Everywhere, || Ok(()));
        checks.add(SHUTDOWN, Scope::Readiness, move || {
            if lifecycle.phase() < Phase::Leaving {
                Ok(())
            } else {
                Err("process is shutting down".to_owned())
            }
        });
        checks
    }

    /// Adds a check. It is run for every question, so it must not wait for anything.
    pub fn add(
        &self,
        name: &'static str,
        scope: Scope,
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut checks = self.checks.write();
        // As upstream shows them: the shutdown comes last.
        let end = checks.iter().position(|it| it.name == SHUTDOWN).unwrap_or(checks.len());
        checks.insert(end, Check { name, scope, run: Arc::new(run) });
    }

    /// Adds a check that fails until its gate is done.
    pub fn gate(&self, name: &'static str, scope: Scope) -> Gate {
        let gate = Gate(Arc::default());
        let checked = gate.clone();
        self.add(
            name,
            scope,
            move || if checked.is_done() { Ok(()) } else { Err("not finished".to_owned()) },
        );
        gate
    }

    /// Whether the path is one of the three endpoints, or of their checks.
    pub fn has(&self, path: &str) -> bool {
        self.resolve(path).is_some()
    }

    /// Whether `/readyz` passes.
    pub fn is_ready(&self) -> bool {
        self.selected(Endpoint::Readyz).iter().all(|it| (it.run)().is_ok())
    }

    /// Code and text for a path and its query, which is not decoded yet.
    pub fn handle(&self, path: &str, query: &str) -> (u16, String) {
        match self.resolve(path) {
            None => (404, "404 page not found\n".to_owned()),
            Some((endpoint, None)) => self.all(endpoint, &Query::parse(query)),
            Some((endpoint, Some(check))) => self.single(endpoint, &check),
        }
    }

    fn resolve(&self, path: &str) -> Option<(Endpoint, Option<Selected>)> {
        let path = path.strip_prefix('/')?;
        let (root, name) = path.split_once('/').unwrap_or((path, ""));
        let endpoint = match root {
            "healthz" => Endpoint::Healthz,
            "livez" => Endpoint::Livez,
            "readyz" => Endpoint::Readyz,
            _ => return None,
        };
        if name.is_empty() {
            return Some((endpoint, None));
        }
        let check = self.selected(endpoint).into_iter().find(|it| it.name == name)?;
        Some((endpoint, Some(check)))
    }

    /// The checks of an endpoint; run outside the lock.
    fn selected(&self, endpoint: Endpoint) -> Vec<Selected> {
        let checks = self.checks.read();
        let is_there = |it: &&Check| it.scope != Scope::Readiness || endpoint == Endpoint::Readyz;
        let counts = |it: &Check| it.scope != Scope::Health || endpoint != Endpoint::Livez;
        let selected = |it: &Check| Selected { name: it.name, run: Arc::clone(&it.run), counts: counts(it) };
        checks.iter().filter(is_there).map(selected).collect()
    }

    fn single(&self, endpoint: Endpoint, Selected { name, run, .. }: &Selected) -> (u16, String) {
        let result = run();
        self.metrics.health_checked(name, endpoint.name(), result.is_ok());
        match result {
            Ok(()) => (200, "ok".to_owned()),
            Err(error) => (500, format!("internal server error: {error}\n")),
        }
    }

    fn all(&self, endpoint: Endpoint, query: &Query) -> (u16, String) {
        let mut text = String::new();
        let mut failed = Vec::new();
        let mut unknown = query.excluded.clone();
        for Selected { name, run, counts } in self.selected(endpoint) {
            if query.excluded.iter().any(|it| it == name) {
                unknown.retain(|it| it != name);
                line(&mut text, format_args!("[+]{name} excluded: ok"));
                continue;
            }
            let result = run();
            self.metrics.health_checked(name, endpoint.name(), result.is_ok());
            match result {
                Ok(()) => line(&mut text, format_args!("[+]{name} ok")),
                Err(_) if !counts => line(&mut text, format_args!("[+]{name} excluded: ok")),
                Err(error) => {
                    // The endpoint is open to everybody; only the log says why.
                    line(&mut text, format_args!("[-]{name} failed: reason withheld"));
                    tracing::debug!(endpoint = endpoint.name(), check = name, error, "a health check failed");
                    failed.push(name);
                }
            }
        }
        if !unknown.is_empty() {
            let names: Vec<_> = unknown.iter().map(|it| format!("{it:?}")).collect();
            let names = names.join(", ");
            line(
                &mut text,
                format_args!("warn: some health checks cannot be excluded: no matches for {names}"),
            );
        }
        let endpoint = endpoint.name();
        match (failed.is_empty(), query.verbose) {
            (false, _) => (500, format!("{text}{endpoint} check failed\n")),
            (true, true) => (200, format!("{text}{endpoint} check passed\n")),
            (true, false) => (200, "ok".to_owned()),
        }
    }
}

/// A check at an endpoint.
struct Selected {
    name: &'static str,
    run: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// Whether the endpoint fails with it.
    counts: bool,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.checks.read().iter().map(|it| it.name)).finish()
    }
}

fn line(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string must succeed");
}

/// The most names that a client can have excluded; each is looked for among the checks.
const MAX_EXCLUDED: usize = 64;

#[derive(Debug, Default)]
struct Query {
    verbose: bool,
    excluded: Vec<String>,
}

impl Query {
    fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "verbose" => parsed.verbose = true,
                "exclude" if parsed.excluded.len() < MAX_EXCLUDED => {
                    let value = decode(value);
                    if !value.is_empty() && !parsed.excluded.contains(&value) {
                        parsed.excluded.push(value);
                    }
                }
                _ => {}
            }
        }
        parsed
    }
}

/// Undoes percent-encoding; what is not valid stays as it is.
fn decode(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        match (first, hex.and_then(|it| u8::from_str_radix(it, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
