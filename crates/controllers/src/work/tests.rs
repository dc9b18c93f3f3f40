//! The loop with passes that count, fail, wait and panic. Time stands still except where tokio moves it.

use std::cell::{Cell, RefCell};

use futures_util::stream;

use super::*;

/// Sends these names, then nothing, for as long as a test lasts.
fn named(names: &[&str]) -> impl Stream<Item = String> {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    stream::iter(names).chain(stream::pending())
}

fn counted() -> Counted {
    Counted { controller: "test", observe: Arc::new(crate::observe::Nobody) }
}

/// Runs passes for this long, and returns which objects they were about.
async fn run_for<P>(limit: Duration, names: &[&str], pass: impl Fn(String, usize) -> P) -> Vec<String>
where
    P: Future<Output = Result<Next, Error>>,
{
    let seen = RefCell::new(Vec::new());
    let reconcile = |name: String| {
        seen.borrow_mut().push(name.clone());
        let n_earlier = seen.borrow().iter().filter(|it| **it == name).count() - 1;
        pass(name, n_earlier)
    };
    let _ = tokio::time::timeout(limit, work(counted(), AT_ONCE, named(names), reconcile)).await;
    seen.into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_pass_leads_to_one_more() {
    // The first pass lasts from 0 to 1 s; the later changes come in the middle of it.
    let half = Duration::from_millis(500);
    let during = stream::once(tokio::time::sleep(half)).flat_map(|()| stream::iter(["a", "a"]));
    let triggers = stream::iter(["a"]).chain(during).chain(stream::pending()).map(str::to_owned);
    let passes = Cell::new(0);
    let reconcile = |_| async {
        passes.set(passes.get() + 1);
        tokio::time::sleep(half * 2).await;
        Ok(Next::OnChange)
    };
    let _ = tokio::time::timeout(half * 20, work(counted(), AT_ONCE, triggers, reconcile)).await;
    assert_eq!(passes.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_with_growing_pauses() {
    // 0.25, 0.5, 1, 2, 4 and 8 seconds are 15.75; the pauses after that are 16 and 30.
    let fail = |_, _| async { Err(Error::Unknown("not today".to_owned())) };
    assert_eq!(run_for(Duration::from_secs(16), &["a"], fail).await.len(), 7);
    assert_eq!(run_for(Duration::from_secs(61), &["a"], fail).await.len(), 8);
    assert_eq!(run_for(Duration::from_secs(62), &["a"], fail).await.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_one_object() {
    let seen = run_for(Duration::from_millis(200), &["a", "b"], |name, _| async move {
        assert_ne!(name, "a", "on purpose");
        Ok(Next::OnChange)
    });
    assert_eq!(seen.await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_wait_or_hang_do_not_hold_up_others() {
    let seen =
        run_for(PASS_LIMIT + Duration::from_secs(1), &["1", "2", "3", "4", "5", "6"], |name, _| async move {
            match name.as_str() {
                "6" => Ok(Next::OnChange),
                "5" => Ok(Next::After(Duration::from_secs(3600))),
                _ => std::future::pending().await,
            }
        });
    let seen = seen.await;
    assert_eq!(seen.iter().filter(|it| **it == "5" || **it == "6").count(), 2, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_succeeds_starts_the_pauses_over() {
    let seen = run_for(Duration::from_millis(2900), &["a"], |_, n_earlier| async move {
        if n_earlier % 2 == 0 {
            Err(Error::Unknown("every other time".to_owned()))
        } else {
            Ok(Next::After(Duration::from_millis(250)))
        }
    });
    assert_eq!(seen.await.len(), 12);
}

/// Everything that is counted, as text.
#[derive(Default)]
struct Tally(std::sync::Mutex<Vec<String>>);

impl crate::Observe for Tally {
    fn queued(&self, controller: &'static str) {
        self.note(format!("{controller} queued"));
    }
    fn unqueued(&self, controller: &'static str) {
        self.note(format!("{controller} unqueued"));
    }
    fn begins(&self, controller: &'static str, waited: Duration) {
        self.note(format!("{controller} begins after {waited:?}"));
    }
    fn ended(&self, controller: &'static str, took: Duration, has_failed: bool) {
        self.note(format!("{controller} ended after {took:?}, failed: {has_failed}"));
    }
    fn retried(&self, controller: &'static str) {
        self.note(format!("{controller} retried"));
    }
    fn undiscovered(&self) {}
    fn leads(&self, _: &str, _: bool) {}
}

impl Tally {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

#[tokio::test(start_paused = true)]
async fn passes_are_counted_and_what_waits_when_the_work_stops_is_not_forgotten() {
    let tally = Arc::new(Tally::default());
    let counted = Counted { controller: "test", observe: tally.clone() };
    let reconcile = |name: String| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if name == "a" { Err(Error::Unknown("no".to_owned())) } else { Ok(Next::OnChange) }
    };
    let limit = Duration::from_millis(1100);
    let _ = tokio::time::timeout(limit, work(counted, 1, named(&["a", "b", "c"]), reconcile)).await;
    let noted = tally.0.lock().unwrap();
    let n = |what: &str| noted.iter().filter(|it| it.contains(what)).count();
    assert_eq!((n("queued") - n("unqueued"), n("unqueued")), (3, 3), "{noted:?}");
    assert_eq!((n("begins after 0ns"), n("begins after 1s"), n("begins")), (1, 1, 2), "{noted:?}");
    assert_eq!((n("ended after 1s, failed: true"), n("ended")), (1, 1), "{noted:?}");
    assert_eq!(n("retried"), 1, "{noted:?}");
}
