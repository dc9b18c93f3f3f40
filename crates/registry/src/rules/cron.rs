//! Schedules of CronJobs, as upstream's parser reads and refuses them.

/// The smallest and largest value of each field, and the names that stand for values.
const FIELDS: [(u64, u64, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
const NAMED: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

const ZONE: &str = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";

/// Why a text is no schedule.
pub(super) fn complaint(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    if schedule.starts_with('@') {
        // What a duration may look like is not looked into.
        let is_known = NAMED.contains(&schedule) || schedule.starts_with("@every ");
        return (!is_known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let mut fields: Vec<&str> = schedule.split_whitespace().collect();
    let has_zone = fields.first().is_some_and(|it| it.starts_with("TZ=") || it.starts_with("CRON_TZ="));
    if has_zone {
        fields.remove(0);
    }
    if fields.len() != FIELDS.len() {
        let (n, shown) = (fields.len(), fields.join(" "));
        return Some(format!("expected exactly 5 fields, found {n}: [{shown}]"));
    }
    let parts = fields
        .iter()
        .zip(FIELDS)
        .flat_map(|(field, bounds)| field.split(',').filter(|it| !it.is_empty()).map(move |it| (it, bounds)));
    let wrong = parts.filter_map(|(part, bounds)| range(part, bounds).err()).next();
    wrong.or_else(|| has_zone.then(|| ZONE.to_owned()))
}

/// `1`, `1-5`, `*`, each with a step behind a slash.
fn range(text: &str, (least, most, names): (u64, u64, &[&str])) -> Result<(), String> {
    let steps: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (least, most),
        [only] => {
            let only = value(only, least, names)?;
            (only, only)
        }
        [first, last] => (value(first, least, names)?, value(last, least, names)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {text}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, least: u64, names: &[&str]) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match names.iter().position(|it| *it == lower) {
        Some(position) => Ok(least + u64::try_from(position).unwrap_or_default()),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(negative @ ..0) => Err(format!("negative number ({negative}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => {
            let quoted = meta::field::quote(text);
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_schedules_pass() {
        for it in ["* * * * *", "0 3 * * MON-FRI", "*/5 0-12/2 1,15 jan ?", "@daily", "@every 1h30m"] {
            assert_eq!(complaint(it), None, "{it}");
        }
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_the_parser() {
        for (schedule, why) in [
            ("x", "expected exactly 5 fields, found 1: [x]"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("TZ=UTC * * * * *", ZONE),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(complaint(schedule).as_deref(), Some(why), "{schedule}");
        }
    }
}
