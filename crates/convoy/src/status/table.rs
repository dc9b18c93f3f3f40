//! The status as people read it: columns as kubectl pads them, colour for what needs a look.

use std::fmt::Write;

use jiff::Timestamp;
use station::view::{MemberView, ResourceView, View};

use crate::output::padded;

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// How many resources that only one server has are named.
const MAX_ALONE: usize = 8;

/// The whole page.
pub fn render(view: &View, now: Timestamp, has_colour: bool) -> String {
    let paint = |colour: &str, text: &str| match has_colour {
        true => format!("{colour}{text}{PLAIN}"),
        false => text.to_owned(),
    };
    let mut page = String::new();
    if let Some(cluster) = &view.cluster {
        let _ = writeln!(
            page,
            "Agreement: {}; guarantee: {}; protocol {}",
            cluster.agreement, cluster.guarantee, cluster.protocol
        );
    }
    if let Some(server) = view.server.as_ref().filter(|it| it.state != "Member") {
        let _ = writeln!(
            page,
            "{}",
            paint(RED, &format!("Asked {}: {} {}", server.identity, server.state, server.reason))
        );
    }
    page.push('\n');
    members(&mut page, view, now);
    for refused in &view.refused {
        let line = format!("REFUSED {} ({}): {}", refused.identity, refused.emulated_version, refused.reason);
        let _ = writeln!(page, "{}", paint(RED, &line));
    }
    page.push('\n');
    resources(&mut page, view, &paint);
    page
}

fn members(page: &mut String, view: &View, now: Timestamp) {
    let mut rows = vec![["SERVER", "RELEASE", "ADDRESS", "AGE", "INCARNATION", "VOTES"].map(str::to_owned)];
    for MemberView { identity, incarnation, emulated_version, address, since, votes, .. } in &view.members {
        let since: Option<Timestamp> = since.parse().ok();
        let age = since.map_or_else(|| "<unknown>".to_owned(), |it| age(it, now));
        let short: String = incarnation.chars().take(8).collect();
        let votes = if *votes { "yes" } else { "no" };
        let address = if address.is_empty() { "<none>" } else { address };
        rows.push([identity, emulated_version, address, &age, &short, votes].map(str::to_owned));
    }
    if rows.len() == 1 {
        page.push_str("No server is running.\n");
        return;
    }
    for line in padded(&rows) {
        let _ = writeln!(page, "{line}");
    }
    for member in view.members.iter().filter(|it| !it.serves_alone.is_empty()) {
        let (first, rest) = member.serves_alone.split_at(member.serves_alone.len().min(MAX_ALONE));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let _ = writeln!(page, "Only {} serves {}{more}", member.identity, first.join(", "));
    }
}

fn resources(page: &mut String, view: &View, paint: &impl Fn(&str, &str) -> String) {
    let mut sorted: Vec<&ResourceView> = view.resources.iter().collect();
    // What needs a look comes first.
    sorted.sort_by_key(|it| (urgency(it), it.resource.clone()));
    let mut rows = vec![["RESOURCE", "SELECTED", "COMMON", "PREFERRED", "STATE"].map(str::to_owned)];
    for resource in &sorted {
        let shown = |it: &Option<String>| it.clone().unwrap_or_else(|| "<unset>".to_owned());
        let mut preferred: Vec<&str> =
            resource.servers.iter().map(|it| it.preferred_version.as_str()).collect();
        preferred.sort_unstable();
        preferred.dedup();
        rows.push([
            resource.resource.clone(),
            shown(&resource.selected_version),
            shown(&resource.common_encoding_version),
            if preferred.is_empty() { "<none>".to_owned() } else { preferred.join(",") },
            state(resource),
        ]);
    }
    let mut lines = padded(&rows).into_iter();
    if let Some(heading) = lines.next() {
        let _ = writeln!(page, "{heading}");
    }
    for (resource, line) in sorted.iter().zip(lines) {
        let line = match urgency(resource) {
            0 => paint(RED, &line),
            1 => paint(YELLOW, &line),
            _ => line,
        };
        let _ = writeln!(page, "{line}");
    }
    let served: Vec<_> = sorted.iter().filter(|it| !it.servers.is_empty()).collect();
    let agreed = served.iter().filter(|it| !it.is_disputed()).count();
    let summary = format!("{agreed} of {} resources agreed on", served.len());
    let colour = if agreed == served.len() { GREEN } else { YELLOW };
    let _ = writeln!(page, "\n{}", paint(colour, &summary));
}

fn urgency(resource: &ResourceView) -> u8 {
    match (resource.is_disputed(), resource.waiting.is_empty() && resource.hold.is_empty()) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    }
}

fn state(resource: &ResourceView) -> String {
    let mut parts = Vec::new();
    match &resource.common_encoding_version {
        Some(_) => parts.push("Agreed".to_owned()),
        None if !resource.is_disputed() => parts.push("No server serves it; its objects stay".to_owned()),
        None => parts.push(format!("{}: {}", resource.reason, resource.message)),
    }
    if !resource.hold.is_empty() {
        parts.push(format!("held by {}", resource.hold));
    } else if !resource.waiting.is_empty() {
        parts.push(format!("waiting {}", resource.waiting));
    }
    parts.join("; ")
}

/// As kubectl shows ages, roughly: the largest unit that fits.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use station::view::{ClusterView, EntryView};

    use super::*;

    fn resource(name: &str, common: Option<&str>, waiting: &str) -> ResourceView {
        ResourceView {
            resource: name.to_owned(),
            custom: false,
            selected_version: Some("v1".to_owned()),
            common_encoding_version: common.map(str::to_owned),
            epoch: 1,
            reason: "MembersMissing".to_owned(),
            message: "not yet reported by b".to_owned(),
            waiting: waiting.to_owned(),
            hold: String::new(),
            servers: vec![EntryView {
                identity: "a".to_owned(),
                encoding_version: "v1".to_owned(),
                preferred_version: "v2".to_owned(),
                decodable_versions: vec!["v1".to_owned()],
                served_versions: Vec::new(),
            }],
        }
    }

    #[test]
    fn what_needs_a_look_comes_first() {
        let view = View {
            server: None,
            cluster: Some(ClusterView {
                agreement: "vote".into(),
                guarantee: "strict".into(),
                protocol: 1,
                id: None,
            }),
            members: vec![MemberView {
                identity: "apiserver-a".into(),
                incarnation: "0123456789".into(),
                release: "1.36".into(),
                emulated_version: "1.34".into(),
                min_compatibility_version: "1.33".into(),
                address: String::new(),
                since: "2026-01-01T00:00:00Z".into(),
                votes: true,
                forwards: true,
                serves_alone: vec!["batch/v1 jobs".into()],
            }],
            refused: Vec::new(),
            resources: vec![
                resource("c", Some("v1"), ""),
                resource("b", Some("v1"), "for the votes of x"),
                resource("a", None, ""),
            ],
        };
        let now: Timestamp = "2026-01-01T00:03:00Z".parse().unwrap();
        let page = render(&view, now, false);
        let expected = "\
Agreement: vote; guarantee: strict; protocol 1

SERVER        RELEASE   ADDRESS   AGE   INCARNATION   VOTES
apiserver-a   1.34      <none>    3m    01234567      yes
Only apiserver-a serves batch/v1 jobs

RESOURCE   SELECTED   COMMON    PREFERRED   STATE
a          v1         <unset>   v2          MembersMissing: not yet reported by b
b          v1         v1        v2          Agreed; waiting for the votes of x
c          v1         v1        v2          Agreed

2 of 3 resources agreed on
";
        assert_eq!(page, expected);
        assert!(render(&view, now, true).contains(RED));
    }
}
