//! Which document of discovery a client wants: in which form, and about which servers.

/// What a client wants to know of discovery, by its first wish that can be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    pub(crate) profile: Profile,
}

/// Whose documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As `--peer-discovery` says.
    Usual,
    /// What this server serves by itself, not what the others do. Upstream has this one.
    NoPeer,
    /// What any server serves. Controllers must not miss anything.
    Union,
}

/// The form of `/api` and `/apis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A list of groups.
    Plain,
    /// Everything at once.
    V2,
    /// The same as older clients read it.
    V2beta1,
}

impl Wanted {
    /// Reads an `Accept` header.
    pub(crate) fn of(accept: &str) -> Self {
        let wish = |entry: &str| {
            let entry: String = entry.chars().filter(|it| !it.is_whitespace()).collect();
            let has = |part: &str| entry.split(';').any(|it| it == part);
            let media = entry.split(';').next().unwrap_or_default();
            let form = if entry.contains(";g=") {
                let is_list = media == "application/json"
                    && has("g=apidiscovery.k8s.io")
                    && has("as=APIGroupDiscoveryList");
                match (is_list, has("v=v2"), has("v=v2beta1")) {
                    (true, true, _) => Form::V2,
                    (true, _, true) => Form::V2beta1,
                    _ => return None,
                }
            } else if matches!(media, "application/json" | "application/*" | "*/*") {
                Form::Plain
            } else {
                return None;
            };
            let profile = match (has("profile=nopeer"), has("profile=union")) {
                (true, _) => Profile::NoPeer,
                (false, true) => Profile::Union,
                (false, false) => Profile::Usual,
            };
            Some(Self { form, profile })
        };
        let nothing_special = Self { form: Form::Plain, profile: Profile::Usual };
        accept.split(',').find_map(wish).unwrap_or(nothing_special)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wish_that_can_be_met_counts() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        for (accept, form, profile) in [
            (String::new(), Form::Plain, Profile::Usual),
            ("application/json".to_owned(), Form::Plain, Profile::Usual),
            ("text/html, */*".to_owned(), Form::Plain, Profile::Usual),
            (v2.to_owned(), Form::V2, Profile::Usual),
            (v2.replace("v=v2", "v=v2beta1"), Form::V2beta1, Profile::Usual),
            (format!("{v2};profile=nopeer,{v2},application/json"), Form::V2, Profile::NoPeer),
            (format!("{v2},{v2};profile=nopeer"), Form::V2, Profile::Usual),
            (format!("{v2};profile=other"), Form::V2, Profile::Usual),
            (format!("{v2};profile=union,{v2}"), Form::V2, Profile::Union),
            (format!("{v2}, application/json").replace("v=v2", "v=v9"), Form::Plain, Profile::Usual),
            (v2.replace(';', " ; "), Form::V2, Profile::Usual),
            (
                format!("application/vnd.kubernetes.protobuf;g=x;profile=nopeer,{v2}"),
                Form::V2,
                Profile::Usual,
            ),
            (";;;,,".to_owned(), Form::Plain, Profile::Usual),
        ] {
            assert_eq!(Wanted::of(&accept), Wanted { form, profile }, "{accept:?}");
        }
    }
}
