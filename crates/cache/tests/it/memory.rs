//! What the process grows by when a cache is put in front of many objects. The bound itself is checked
//! next to the code; this prints what the system says.

use store::Key;

use crate::support::*;

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()
}

#[tokio::test]
async fn ten_thousand_objects_fit() {
    let store = memory_store();
    let mut json = 0;
    for number in 0..10_000 {
        let text = map_text(&format!("object-{number}"), &"x".repeat(900));
        json += text.len();
        put(&store, &Key::new(format!("{MAPS}default/object-{number}")), text).await;
    }
    let before = resident_kib();
    let cache = start(&store).await;
    let after = resident_kib();
    if let (Some(before), Some(after)) = (before, after) {
        println!(
            "10000 objects: JSON {} KiB, process grew by {} KiB",
            json >> 10,
            after.saturating_sub(before)
        );
    }
    assert_eq!(maps(&cache).len().unwrap(), 10_000);
}
