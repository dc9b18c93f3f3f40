//! Files that are read again when they change.
//!
//! Responsible for: looking every few seconds, and one line in the log when something new is used, or cannot be.
//! Deliberately not here: what is read. Whoever is followed reads its files, compares them with what it uses, and goes on
//! with that where the new ones are half written or broken.
//! Files are compared by what is in them: a file system need not tell of changes, and a Secret that is mounted into a
//! container changes by a link.

use std::{error::Error, time::Duration};

use store::SharedClock;

use crate::body::BoxError;

/// How often files are looked at.
pub const EVERY: Duration = Duration::from_secs(5);

/// Has files read again for ever. `reload` says whether something changed; an error is told once, until it is gone.
pub async fn files<T>(what: &'static str, clock: SharedClock, reload: impl Fn() -> T + Send)
where
    T: Future<Output = Result<bool, BoxError>> + Send,
{
    let mut is_broken = false;
    loop {
        clock.sleep(EVERY).await;
        match reload().await {
            Ok(has_changed) => {
                is_broken = false;
                if has_changed {
                    tracing::info!(files = what, "changed files are in use");
                }
            }
            Err(error) => {
                if !is_broken {
                    let error = in_one_line(&*error);
                    tracing::error!(
                        files = what,
                        error,
                        "changed files are not used: the old ones stay in use"
                    );
                }
                is_broken = true;
            }
        }
    }
}

/// The same for whoever reads files without waiting in between: beside the threads that serve connections.
pub async fn aside<E>(reload: impl FnOnce() -> Result<bool, E> + Send + 'static) -> Result<bool, BoxError>
where
    E: Into<BoxError> + Send + 'static,
{
    match tokio::task::spawn_blocking(reload).await {
        Ok(reloaded) => reloaded.map_err(Into::into),
        Err(ended) => Err(ended.into()),
    }
}

fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use store::{Clock, ManualClock};

    use super::*;

    #[tokio::test]
    async fn an_error_does_not_end_it() {
        let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
        let n_looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_looks);
        let following = tokio::spawn(files("things", clock.clone(), move || {
            let n = counted.fetch_add(1, Ordering::Relaxed);
            aside(move || if n.is_multiple_of(2) { Err("broken") } else { Ok(true) })
        }));
        while n_looks.load(Ordering::Relaxed) < 5 {
            clock.advance(EVERY);
            tokio::task::yield_now().await;
        }
        assert!(clock.monotonic() >= 5 * EVERY);
        following.abort();
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let cause = std::io::Error::other("no disk");
        let error = crate::files::WriteError { path: "/a".into(), source: cause };
        assert_eq!(in_one_line(&error), "cannot write /a: no disk");
    }
}
