//! The committed measurement, an upper bound for later ones.

use super::{Row, Worst};
use kiln_ir::DType;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Returns the path of the record.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("accuracy/record.json")
}

/// Reads the record.
///
/// # Errors
/// When the file is missing or does not have the format of [`print()`].
pub fn read() -> Result<Vec<Row>, String> {
    let path = path();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Row>, String> {
    let rows: Vec<Json> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    rows.iter().map(|row| from_json(row).ok_or_else(|| format!("not a row of the record: {row}"))).collect()
}

/// Returns the record as text, one row a line.
pub fn print(rows: &[Row]) -> String {
    let lines: Vec<String> = rows.iter().map(|row| to_json(row).to_string()).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn to_json(row: &Row) -> Json {
    let worst: Vec<Json> = row
        .worst
        .iter()
        .map(|(engine, worst)| json!({"engine": engine, "error": worst.error, "at": worst.at.to_string()}))
        .collect();
    json!({
        "function": row.function, "dtype": row.dtype.name(), "table": row.table,
        "points": row.points, "allowed": row.allowed, "worst": worst,
    })
}

fn from_json(json: &Json) -> Option<Row> {
    let worst = |json: &Json| {
        // JSON has no infinity.
        let error = if json["error"].is_null() { f64::INFINITY } else { json["error"].as_f64()? };
        let at = json["at"].as_str()?.parse().ok()?;
        Some((json["engine"].as_str()?.to_owned(), Worst { error, at }))
    };
    Some(Row {
        function: json["function"].as_str()?.to_owned(),
        dtype: DType::from_name(json["dtype"].as_str()?)?,
        table: json["table"].as_str()?.to_owned(),
        points: json["points"].as_u64()? as usize,
        allowed: json["allowed"].as_u64().map(|bound| bound as u32),
        worst: json["worst"].as_array()?.iter().map(worst).collect::<Option<_>>()?,
    })
}

/// The regression allowed over the record. `f32` kernels are Kiln's own and equal everywhere. In `f64` the CPU engine
/// calls the platform's library. Its versions differ in the last place, and more where a function is a small
/// difference.
fn slack(row: &Row, engine: &str, known: f64) -> f64 {
    match row.table.as_str() {
        "fftw" => 2e-16,
        _ if row.dtype == DType::F64 && engine != "reference" => 1.0 + known / 4.0,
        _ => 0.0,
    }
}

/// Measurements that are worse than the record, missing from it, or only in it.
pub fn problems(record: &[Row], measured: &[Row]) -> Vec<String> {
    let mut problems = Vec::new();
    for row in measured {
        let subject = format!("{} in {} ({})", row.function, row.dtype, row.table);
        let Some(known) = record.iter().find(|known| known.same_subject(row)) else {
            problems.push(format!("{subject} is not in the record"));
            continue;
        };
        if known.points != row.points {
            problems.push(format!("{subject}: {} points, the record has {}", row.points, known.points));
        }
        for (engine, worst) in &row.worst {
            match known.worst(engine) {
                None => problems.push(format!("{subject}: the record has no {engine}")),
                Some(bound) if worst.error > bound.error + slack(row, engine, bound.error) => {
                    problems.push(format!(
                        "{subject} on {engine}: error {} at {}, the record has {}",
                        worst.error, worst.at, bound.error
                    ))
                }
                Some(_) => {}
            }
        }
    }
    let gone = record.iter().filter(|known| !measured.iter().any(|row| row.same_subject(known)));
    problems.extend(
        gone.map(|row| format!("{} in {} ({}) is no longer measured", row.function, row.dtype, row.table)),
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(error: f64) -> Row {
        let worst = vec![("reference".to_owned(), Worst { error, at: f64::NEG_INFINITY })];
        let (function, table) = ("exp".to_owned(), "numpy".to_owned());
        Row { function, dtype: DType::F32, table, points: 3, allowed: Some(2), worst }
    }

    #[test]
    fn rows_round_trip_through_text() {
        let rows = vec![row(1.0), row(f64::INFINITY)];
        assert_eq!(parse(&print(&rows)).unwrap(), rows);
        assert!(parse("[{}]").is_err());
    }

    #[test]
    fn a_worse_measurement_is_reported() {
        assert!(problems(&[row(1.0)], &[row(1.0)]).is_empty());
        assert!(problems(&[row(1.0)], &[row(0.0)]).is_empty());
        assert!(problems(&[row(1.0)], &[row(2.0)])[0].contains("error 2"));
        assert!(problems(&[row(1.0)], &[row(f64::INFINITY)])[0].contains("error inf"));
        assert!(problems(&[], &[row(2.0)])[0].contains("not in the record"));
        assert!(problems(&[row(1.0)], &[])[0].contains("no longer"));
        let fewer = Row { points: 2, ..row(1.0) };
        assert!(problems(&[row(1.0)], &[fewer])[0].contains("2 points"));
    }
}
