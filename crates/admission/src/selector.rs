//! Label selectors as objects hold them: `matchLabels` and `matchExpressions`.

use meta::Value;

/// Requirements on labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
    /// What cannot be read selects nothing, so that a restriction does not go lost.
    Never,
}

impl Selector {
    /// Reads one; nothing selects everything.
    pub(crate) fn of(selector: Option<&Value>) -> Self {
        let Some(selector) = selector else { return Self::default() };
        let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let mut requirements: Vec<Requirement> = labels
            .map(|(key, value)| {
                Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()])
            })
            .collect();
        let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        requirements.extend(expressions.map(requirement));
        Self { requirements }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object has the labels.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|it| it.get("labels"));
        let label = |key: &str| labels.and_then(|it| it.get(key)).and_then(Value::as_str);
        self.requirements.iter().all(|it| match it {
            Requirement::In(key, values) => {
                label(key).is_some_and(|it| values.iter().any(|value| value == it))
            }
            Requirement::NotIn(key, values) => {
                !label(key).is_some_and(|it| values.iter().any(|value| value == it))
            }
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::DoesNotExist(key) => label(key).is_none(),
            Requirement::Never => false,
        })
    }
}

fn requirement(expression: &Value) -> Requirement {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values: Vec<String> = values.filter_map(Value::as_str).map(str::to_owned).collect();
    let key = text("key").to_owned();
    match text("operator") {
        "In" => Requirement::In(key, values),
        "NotIn" => Requirement::NotIn(key, values),
        "Exists" => Requirement::Exists(key),
        "DoesNotExist" => Requirement::DoesNotExist(key),
        _ => Requirement::Never,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_selected() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let check = |selector: Value, matches: bool| {
            assert_eq!(Selector::of(Some(&selector)).matches(&object), matches, "{selector}");
        };
        let expression = |operator: &str, key: &str| json!({"matchExpressions": [{"key": key, "operator": operator, "values": ["1"]}]});
        check(json!({}), true);
        check(json!({"matchLabels": {"a": "1"}}), true);
        check(json!({"matchLabels": {"a": "2"}}), false);
        check(expression("In", "a"), true);
        check(expression("In", "c"), false);
        check(expression("NotIn", "a"), false);
        check(expression("NotIn", "c"), true);
        check(expression("Exists", "b"), true);
        check(expression("DoesNotExist", "b"), false);
        check(expression("Sometimes", "b"), false);
        assert!(Selector::of(None).matches(&json!({})));
    }
}
