//! What ends up in the files.

use std::{fs, path::Path};

use store::ManualClock;

use super::*;

fn open(rotation: Rotation) -> (AuditLog, Arc<ManualClock>, Arc<Metrics>) {
    let clock = ManualClock::at("2026-11-15T21:30:00Z".parse().unwrap());
    let shared: SharedClock = clock.clone();
    let metrics = Arc::new(Metrics::new(&shared, "v1.36.0", meta::Release::v1(36)));
    let log = AuditLog::open(Destination::File(rotation), shared, Arc::clone(&metrics)).unwrap();
    (log, clock, metrics)
}

fn rotation(folder: &Path) -> Rotation {
    Rotation { path: folder.join("audit.log"), max_bytes: 0, max_backups: 0, max_age: Duration::ZERO }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn lines_are_appended_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let (log, _clock, metrics) = open(rotation(folder.path()));
        for n in 0..100 {
            log.write(Bytes::from(format!("{{\"n\":{round}{n:02}}}"))).await;
        }
        log.close();
        assert_eq!(metrics.audit_events.get(), 100);
        log.write(Bytes::from_static(b"late")).await;
        assert!(metrics.render().contains("apiserver_audit_error_total{plugin=\"log\"} 1"));
    }
    let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 200);
    assert_eq!((lines[0], lines[199]), ("{\"n\":000}", "{\"n\":199}"));
}

#[test]
fn a_full_file_is_put_aside_and_old_ones_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("audit-of-somebody-else.log"), "").unwrap();
    let clock = ManualClock::at("2026-11-15T21:30:00Z".parse().unwrap());
    let limits = Rotation { max_bytes: 25, max_backups: 2, ..rotation(folder.path()) };
    let mut file = RotatedFile::open(limits, clock.clone()).unwrap();
    for n in 0..8 {
        file.write_all(format!("line {n:04}\n").as_bytes()).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    file.flush().unwrap();
    assert_eq!(
        names(folder.path()),
        [
            "audit-2026-11-15T21-30-04.000.log",
            "audit-2026-11-15T21-30-06.000.log",
            "audit-of-somebody-else.log",
            "audit.log"
        ]
    );
    assert_eq!(fs::read_to_string(folder.path().join("audit.log")).unwrap(), "line 0006\nline 0007\n");
}

#[test]
fn files_that_are_too_old_are_removed_and_names_never_clash() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-11-15T21:30:00Z".parse().unwrap());
    let limits = Rotation { max_bytes: 5, max_age: Duration::from_secs(3_600), ..rotation(folder.path()) };
    let mut file = RotatedFile::open(limits, clock.clone()).unwrap();
    for _ in 0..4 {
        file.write_all(b"12345").unwrap();
    }
    assert_eq!(names(folder.path()).len(), 4, "three in the same millisecond, and the current one");
    clock.advance(Duration::from_secs(7_200));
    file.write_all(b"12345").unwrap();
    assert_eq!(names(folder.path()), ["audit-2026-11-15T23-30-00.000.log", "audit.log"]);
}

#[test]
fn a_log_that_cannot_be_opened_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Rotation { path: folder.path().to_owned(), ..rotation(folder.path()) };
    let clock = store::SystemClock::shared();
    let metrics = Arc::new(Metrics::new(&clock, "v1.36.0", meta::Release::v1(36)));
    assert!(AuditLog::open(Destination::File(limits), clock, metrics).is_err());
}
