//! The table: what was aimed at, what was measured, and how far apart they are.

use std::fmt;

/// One figure.
#[derive(Debug, Clone)]
pub struct Row {
    pub what: String,
    pub target: Target,
    pub measured: f64,
    pub unit: &'static str,
    /// What else is worth knowing: latencies, the distance to the ceiling.
    pub note: String,
}

/// What the figure should be.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// A yardstick, not an aim.
    None,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Table {
    pub rows: Vec<Row>,
}

impl Row {
    /// Whether the aim is met; `None` where there is none.
    pub fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::AtLeast(aim) => Some(self.measured >= aim),
            Target::AtMost(aim) => Some(self.measured <= aim),
            Target::None => None,
        }
    }

    /// `1.20x` of what was aimed at; for upper limits the other way round, so that more is better.
    fn distance(&self) -> String {
        match self.target {
            Target::AtLeast(aim) => format!("{:.2}x", self.measured / aim),
            Target::AtMost(aim) => format!("{:.2}x", aim / self.measured),
            Target::None => String::new(),
        }
    }

    fn aim(&self) -> String {
        match self.target {
            Target::AtLeast(aim) => format!(">= {} {}", figure(aim), self.unit),
            Target::AtMost(aim) => format!("<= {} {}", figure(aim), self.unit),
            Target::None => "-".to_owned(),
        }
    }
}

impl Table {
    pub fn add(&mut self, what: &str, target: Target, measured: f64, unit: &'static str, note: String) {
        self.rows.push(Row { what: what.to_owned(), target, measured, unit, note });
    }

    /// For machines.
    pub fn to_json(&self) -> serde_json::Value {
        let row = |row: &Row| {
            let aim = row.aim();
            serde_json::json!({
                "what": row.what, "target": aim, "measured": row.measured, "unit": row.unit,
                "met": row.is_met(), "note": row.note,
            })
        };
        self.rows.iter().map(row).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | target | measured | distance | met | note |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let met = row.is_met().map_or("", |met| if met { "yes" } else { "NO" });
            let Row { what, unit, note, .. } = row;
            let measured = figure(row.measured);
            writeln!(
                f,
                "| {what} | {} | {measured} {unit} | {} | {met} | {note} |",
                row.aim(),
                row.distance()
            )?;
        }
        Ok(())
    }
}

/// Three figures are enough for people.
fn figure(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_met_from_their_side() {
        let row =
            |target, measured| Row { what: String::new(), target, measured, unit: "", note: String::new() };
        assert_eq!(row(Target::AtLeast(10.0), 12.0).is_met(), Some(true));
        assert_eq!(row(Target::AtMost(10.0), 12.0).is_met(), Some(false));
        assert_eq!(row(Target::None, 12.0).is_met(), None);
        assert_eq!(row(Target::AtMost(10.0), 20.0).distance(), "0.50x");
    }
}
