//! What was measured, as a table for people and as a document for machines.

use serde_json::{Value, json};

use super::endpoint::Endpoint;
use crate::output::{padded, thousands};

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The same on every endpoint.
    pub name: String,
    /// `None` where it could not be measured; the note says why.
    pub value: Option<f64>,
    pub unit: &'static str,
    /// Rates are better when they are higher, times when they are lower.
    pub is_rate: bool,
    pub note: String,
}

/// All figures of one endpoint.
pub struct Column {
    name: String,
    version: String,
    pub figures: Vec<Figure>,
}

/// Everything.
pub struct Report {
    pub columns: Vec<Column>,
    pub seconds: f64,
}

impl Figure {
    pub fn rate(name: impl Into<String>, value: f64, note: String) -> Self {
        Self { name: name.into(), value: Some(value), unit: "/s", is_rate: true, note }
    }

    pub fn time(name: impl Into<String>, millis: f64, note: String) -> Self {
        Self { name: name.into(), value: Some(millis), unit: "ms", is_rate: false, note }
    }

    pub fn skipped(name: impl Into<String>, why: &str) -> Self {
        Self { name: name.into(), value: None, unit: "", is_rate: true, note: why.to_owned() }
    }

    fn text(&self) -> String {
        self.value.map_or_else(|| "-".to_owned(), |it| format!("{} {}", shown(it), self.unit))
    }
}

impl Column {
    pub fn new(endpoint: &Endpoint) -> Self {
        Self { name: endpoint.name.clone(), version: endpoint.version.clone(), figures: Vec::new() }
    }
}

impl Report {
    /// The same figure of the second endpoint, if there is one.
    fn second(&self, figure: &Figure) -> Option<&Figure> {
        self.columns.get(1)?.figures.iter().find(|it| it.name == figure.name)
    }

    /// The first endpoint over the second, so that more is better for the first.
    fn ratio(&self, figure: &Figure) -> Option<f64> {
        let (a, b) = (figure.value?, self.second(figure)?.value?);
        let ratio = if figure.is_rate { a / b } else { b / a };
        ratio.is_finite().then_some(ratio)
    }

    pub fn table(&self) -> String {
        let mut page = String::new();
        for (n, column) in self.columns.iter().enumerate() {
            page += &format!("{}: {} ({})\n", n + 1, column.name, column.version);
        }
        let Some((first, others)) = self.columns.split_first() else { return page };
        let rows = first.figures.iter().map(|figure| {
            let second = self.second(figure).map(Figure::text);
            let ratio = self.ratio(figure).map(|it| format!("{}x", shown(it)));
            [
                figure.name.clone(),
                figure.text(),
                second.unwrap_or_default(),
                ratio.unwrap_or_default(),
                figure.note.clone(),
            ]
        });
        let head = ["", "1", "2", "1 OVER 2", "NOTE"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
        let lines = match others {
            [] => {
                padded(&rows.into_iter().map(|[name, one, _, _, note]| [name, one, note]).collect::<Vec<_>>())
            }
            _ => padded(&rows),
        };
        page + "\n" + &lines.join("\n") + &format!("\n\nEach load ran for {} s.\n", self.seconds)
    }

    pub fn document(&self) -> Value {
        let endpoint = |column: &Column| {
            let figures = column.figures.iter().map(|it| {
                json!({"name": it.name, "value": it.value, "unit": it.unit, "higherIsBetter": it.is_rate,
                    "note": it.note})
            });
            json!({"server": column.name, "version": column.version, "figures": figures.collect::<Vec<_>>()})
        };
        let first = self.columns.iter().take(1).flat_map(|it| &it.figures);
        let ratios =
            first.filter_map(|it| Some(json!({"name": it.name, "firstOverSecond": self.ratio(it)?})));
        json!({"kind": "Bench", "apiVersion": "convoy.dev/v1", "secondsPerLoad": self.seconds,
            "endpoints": self.columns.iter().map(endpoint).collect::<Vec<_>>(),
            "comparison": ratios.collect::<Vec<_>>()})
    }
}

/// Three figures are enough for people.
fn shown(value: f64) -> String {
    match value {
        it if it >= 100.0 => thousands(whole(it)),
        it if it >= 10.0 => format!("{it:.1}"),
        it => format!("{it:.2}"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure for people, never below 0"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(rate: f64, millis: f64) -> Column {
        let figures = vec![
            Figure::rate("GET", rate, String::new()),
            Figure::time("watch", millis, String::new()),
            Figure::skipped("migration", "no such API"),
        ];
        Column { name: "https://a".to_owned(), version: "v1.36.0".to_owned(), figures }
    }

    #[test]
    fn more_is_better_for_the_first_whether_it_is_a_rate_or_a_time() {
        let report = Report { columns: vec![column(3_000.0, 5.0), column(1_000.0, 20.0)], seconds: 5.0 };
        let ratios: Vec<_> = report.columns[0].figures.iter().map(|it| report.ratio(it)).collect();
        assert_eq!(ratios, [Some(3.0), Some(4.0), None]);
        assert_eq!(report.document()["comparison"].as_array().map(Vec::len), Some(2));
        let table = report.table();
        assert!(table.contains("3,000 /s") && table.contains("4.00x"), "{table}");
    }

    #[test]
    fn figures_are_compared_by_name() {
        let mut report = Report { columns: vec![column(3_000.0, 5.0), column(1_000.0, 20.0)], seconds: 5.0 };
        report.columns[0].figures.insert(0, Figure::time("start", 90.0, String::new()));
        let ratios: Vec<_> = report.columns[0].figures.iter().map(|it| report.ratio(it)).collect();
        assert_eq!(ratios, [None, Some(3.0), Some(4.0), None]);
    }

    #[test]
    fn one_endpoint_is_compared_with_nothing() {
        let report = Report { columns: vec![column(3_000.0, 5.0)], seconds: 5.0 };
        assert_eq!(report.document()["comparison"], json!([]));
        assert!(report.table().contains("no such API"));
    }
}
