//! The vectors and the listed deviations, as read from their files.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

/// One vector, its parts kept as they stand in the file.
pub struct Vector {
    pub id: String,
    pub config: Value,
    /// What happens, by time; pool entries before steps at equal times (README of the vectors, section 3).
    pub steps: Vec<Step>,
    pub expect: Vec<Value>,
}

/// One timed operation.
#[derive(Clone)]
pub struct Step {
    pub at_ms: i64,
    pub op: String,
    /// The name that expectations use for its result.
    pub name: Option<String>,
    pub fields: Value,
}

/// What Weir does where it differs on purpose.
pub struct Deviation {
    pub expect: Vec<Value>,
}

/// All vectors of a folder in the order of their files, and its deviations by id.
pub fn read(folder: &Path) -> Result<(Vec<Vector>, BTreeMap<String, Deviation>), String> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    let mut vectors = Vec::new();
    let mut deviations = BTreeMap::new();
    for path in files {
        let says = |error: &dyn Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| says(&error))?;
        let json: Value = serde_json::from_str(&text).map_err(|error| says(&error))?;
        if path.file_stem().is_some_and(|stem| stem == "deviations") {
            deviations.extend(read_deviations(&json).map_err(|error| says(&error))?);
        } else {
            vectors.extend(read_vectors(&json).map_err(|error| says(&error))?);
        }
    }
    Ok((vectors, deviations))
}

fn read_vectors(file: &Value) -> Result<Vec<Vector>, String> {
    // A JSON file without vectors is not ours to judge.
    let Some(vectors) = file["vectors"].as_array() else { return Ok(Vec::new()) };
    vectors.iter().map(read_vector).collect()
}

fn read_vector(vector: &Value) -> Result<Vector, String> {
    let id = vector["id"].as_str().ok_or("a vector without an id")?.to_owned();
    let mut steps = Vec::new();
    for entry in list(&vector["pool_timeline"]) {
        steps.push(Step {
            at_ms: at_ms(entry, &id)?,
            op: "pool".to_owned(),
            name: None,
            fields: entry.clone(),
        });
    }
    for step in list(&vector["steps"]) {
        let op = step["op"].as_str().ok_or_else(|| format!("{id}: a step without an op"))?;
        let name = step["as"].as_str().map(str::to_owned);
        steps.push(Step { at_ms: at_ms(step, &id)?, op: op.to_owned(), name, fields: step.clone() });
    }
    // Stable: pool entries stay before steps, and both in file order.
    steps.sort_by_key(|step| step.at_ms);
    Ok(Vector { id, config: vector["config"].clone(), steps, expect: list(&vector["expect"]).to_vec() })
}

fn at_ms(entry: &Value, id: &str) -> Result<i64, String> {
    entry["t_ms"].as_i64().ok_or_else(|| format!("{id}: t_ms {} is not a whole number", entry["t_ms"]))
}

/// Takes a list, an object with a list in it, or an object keyed by id.
fn read_deviations(file: &Value) -> Result<BTreeMap<String, Deviation>, String> {
    let entries: Vec<(Option<&String>, &Value)> = match file {
        Value::Array(entries) => entries.iter().map(|entry| (None, entry)).collect(),
        Value::Object(object) => match object.values().find_map(Value::as_array) {
            Some(entries) => entries.iter().map(|entry| (None, entry)).collect(),
            None => object.iter().map(|(id, entry)| (Some(id), entry)).collect(),
        },
        _other => return Err("neither a list nor an object".to_owned()),
    };
    let mut all = BTreeMap::new();
    for (key, entry) in entries {
        let id = entry["id"].as_str().or(key.map(String::as_str)).ok_or("a deviation without an id")?;
        let expect = ["expect", "expectations", "weir"].iter().find_map(|name| entry[*name].as_array());
        let expect = expect.ok_or_else(|| format!("deviation {id} without expectations"))?;
        all.insert(id.to_owned(), Deviation { expect: expect.clone() });
    }
    Ok(all)
}

/// The items of a list; nothing for anything else.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text field, or an error that names it.
pub fn text<'a>(fields: &'a Value, name: &str) -> Result<&'a str, String> {
    fields[name].as_str().ok_or_else(|| format!("{name} is {}, not a text", fields[name]))
}

/// A whole number, or an error that names the field.
pub fn whole(fields: &Value, name: &str) -> Result<i64, String> {
    fields[name].as_i64().ok_or_else(|| format!("{name} is {}, not a whole number", fields[name]))
}

/// A priority, or an error that names the field.
pub fn priority(fields: &Value, name: &str) -> Result<i32, String> {
    i32::try_from(whole(fields, name)?).map_err(|_| format!("{name} is not a priority"))
}
