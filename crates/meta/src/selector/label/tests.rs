//! Label selectors against upstream's grammar: what matches, what is refused and in which words.

use proptest::prelude::*;

use super::*;

const LABELS: [(&str, &str); 4] = [("x", "1"), ("app", "web"), ("in", "y"), ("example.com/n", "7")];

fn label(key: &str) -> Option<&'static str> {
    LABELS.iter().find(|(it, _)| *it == key).map(|(_, value)| *value)
}

fn matches(text: &str) -> bool {
    LabelSelector::parse(text).unwrap().matches(label)
}

fn complaint(text: &str) -> String {
    LabelSelector::parse(text).unwrap_err().to_string()
}

#[test]
fn matching_labels_are_selected() {
    for text in [
        "",
        "  ",
        "x",
        "x=1",
        "x==1",
        "x = 1",
        "x!=2",
        "y!=2",
        "x in (1,3)",
        "x in(3,1)",
        "x notin (2)",
        "!y",
        "! y",
        "x>0",
        "x<2",
        "y notin (1)",
        "x,app=web,!z",
        "in=y",
        "in in (y)",
        "example.com/n>6",
        "x in (1,)",
        "x notin ()",
        "x\t=\n1",
    ] {
        assert!(matches(text), "{text}");
    }
}

#[test]
fn other_labels_are_not_selected() {
    for text in [
        "y",
        "x=2",
        "x!=1",
        "x in (2,3)",
        "x in ()",
        "x=",
        "!x",
        "x>1",
        "x<1",
        "app>1",
        "y>1",
        "y in (1)",
        "x,y",
    ] {
        assert!(!matches(text), "{text}");
    }
}

#[test]
fn complaints_are_upstreams() {
    for (text, expect) in [
        ("x in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("x in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("x in (,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("x in a", "unable to parse requirement: found 'a' expected: '('"),
        ("x y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"),
        ("x=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("x,", "found '', expected: identifier after ','"),
        ("x=a b", "found 'b', expected: ',' or 'end of string'"),
        (",x", "found ',', expected: !, identifier, or 'end of string'"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
        (
            "x>a",
            "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must \
             be an integer",
        ),
    ] {
        assert_eq!(complaint(text), expect, "{text}");
    }
}

#[test]
fn bad_keys_and_values_are_named() {
    let key = complaint("-x=1");
    assert!(
        key.starts_with("unable to parse requirement: <nil>: Invalid value: \"-x\": name part must"),
        "{key}"
    );
    let value = complaint("x=-1");
    assert!(
        value.starts_with("unable to parse requirement: values[0][x]: Invalid value: \"-1\": a valid"),
        "{value}"
    );
    let two = complaint("x in (-a,-b)");
    assert!(two.starts_with("unable to parse requirement: [values[0][x]: Invalid value: \"-a\""), "{two}");
}

#[test]
fn selectors_are_written_in_normal_form() {
    for (text, expect) in [
        ("z , a in (c,b,b) ", "a in (b,c),z"),
        ("!a,b==1,c!=2,d>3,e<4,f notin (x),g=", "!a,b==1,c!=2,d>3,e<4,f notin (x),g="),
        ("a in (x,,y)", "a in (,x,y)"),
        ("a in (,)", "a in ()"),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap().to_string(), expect, "{text}");
    }
}

#[test]
fn only_the_empty_selector_is_everything() {
    assert!(LabelSelector::parse("").unwrap().is_everything());
    assert!(!LabelSelector::parse("x").unwrap().is_everything());
    assert!(matches!(LabelSelector::parse(&"x".repeat(65_537)), Err(SelectorError::TooLong(65_537))));
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "[a-z!=<>(),. \\-/\u{e9}\u{0}]{0,40}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            // What was accepted is written in a form that means the same.
            let again = LabelSelector::parse(&selector.to_string()).unwrap();
            prop_assert_eq!(&again, &selector);
            prop_assert_eq!(again.matches(label), selector.matches(label));
        }
    }
}
