//! Goal: objects in every form that operators have them in, mistakes named without harm to the others, and every way in
//! which a file changes.

use super::*;
use crate::load::from_text;
use std::fs;
use std::os::unix::fs::symlink;

fn object(name: &str, pool: &str, priority: &str) -> String {
    format!(
        "apiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferenceObjective\nmetadata:\n  name: {name}\nspec:\n\
         {priority}  poolRef:\n    name: {pool}\n"
    )
}

fn brief(text: &str) -> Result<Vec<(String, String, i32, u32)>, ObjectError> {
    let objects = read_objects(text)?.into_iter();
    Ok(objects.map(|object| (object.pool, object.name, object.priority, object.line)).collect())
}

#[test]
fn objects_are_read_in_every_form() {
    let of = |name: &str, priority, line| ("p".to_owned(), name.to_owned(), priority, line);
    let a = object("a", "p", "  priority: 10\n");
    assert_eq!(brief(&a), Ok(vec![of("a", 10, 1)]));
    let now = a.replace("x-k8s.io/v1alpha2", "k8s.io/v1");
    assert_eq!(brief(&now), Ok(vec![of("a", 10, 1)]));
    assert_eq!(brief(&object("a", "p", "")), Ok(vec![of("a", 0, 1)]), "no priority is 0");
    assert_eq!(brief(&object("a", "p", "  priority: null\n")), Ok(vec![of("a", 0, 1)]));
    let b = object("b", "p", "  priority: -2147483648\n");
    let many = format!(
        "# head\n---\n{a}---  # next\n{b}...\n---\n\n---\nkind: ConfigMap\napiVersion: v1\ndata:\n  x: |\n    --- no\n"
    );
    assert_eq!(brief(&many), Ok(vec![of("a", 10, 3), of("b", i32::MIN, 12)]));
    let list = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"inference.networking.k8s.io/v1","kind":"InferenceObjective","metadata":{"name":"j","namespace":"x"},
         "spec":{"priority":5,"poolRef":{"group":"inference.networking.k8s.io","kind":"InferencePool","name":"p"}},"status":{}},
        {"apiVersion":"v1","kind":"Pod"}]}"#;
    assert_eq!(brief(list), Ok(vec![of("j", 5, 2)]));
    assert_eq!(
        brief(
            "--- {apiVersion: inference.networking.k8s.io/v1, kind: InferenceObjective, metadata: {name: a}, spec: {poolRef: {name: p}}}\n"
        ),
        Ok(vec![of("a", 0, 1)])
    );
    for nothing in
        ["", "---\n", "# only this\n", "kind: InferenceObjective\napiVersion: example.com/v1\n", "{}\n"]
    {
        assert_eq!(brief(nothing), Ok(Vec::new()), "{nothing:?}");
    }
}

#[test]
fn what_is_not_allowed_is_named_with_its_line() {
    let good = object("good", "p", "");
    for (text, line, what) in [
        (object("a", "p", "  priority: high\n"), 6, "spec.priority"),
        (object("a", "p", "  priority: 1.5\n"), 6, "spec.priority"),
        (object("a", "p", "  priority: 2147483648\n"), 6, "spec.priority"),
        (object("a", "p", "  priority: \"10\"\n"), 6, "spec.priority"),
        (object("", "p", ""), 1, "metadata.name"),
        (object("a", "[1]", ""), 7, "spec.poolRef.name"),
        (object("a", "p\n    kind: Service", ""), 8, "spec.poolRef.kind"),
        (object("a", "p\n    group: example.com", ""), 8, "spec.poolRef.group"),
        (object("a", "p", "").replace("  poolRef", "  pool"), 1, "spec.poolRef.name"),
        (format!("{good}---\n{}", object("a", "p", "  priority: x\n")), 14, "spec.priority"),
        (format!("{good}---\nkind: [\n"), 9, "the document"),
        ("just text\n".to_owned(), 1, "the document"),
        ("apiVersion: v1\nkind: List\nitems: 7\n".to_owned(), 3, "items"),
    ] {
        let error = read_objects(&text).unwrap_err();
        assert_eq!((error.line, error.what.as_str()), (line, what), "{text}: {error}");
    }
}

fn table(folder: &Folder, settings: &str) -> BTreeMap<String, BTreeMap<String, i32>> {
    let mut effective = from_text(settings, []).unwrap();
    folder.apply(&mut effective);
    effective.pools.into_iter().map(|(name, pool)| (name, pool.objectives)).collect()
}

fn map(of: &[(&str, i32)]) -> BTreeMap<String, i32> {
    of.iter().map(|(name, priority)| ((*name).to_owned(), *priority)).collect()
}

#[test]
fn each_pool_has_its_own_and_the_table_of_the_file_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(
        "a.yaml",
        &[object("chat", "one", "  priority: 7\n"), object("batch", "one", "  priority: -1\n")].join("---\n"),
    );
    write("b.yml", &object("chat", "llama-pool", "  priority: 3\n"));
    write("c.json", &object("chat", "one", "  priority: 99\n"));
    write(".hidden.yaml", &object("hidden", "one", ""));
    write("notes.txt", "not YAML: [");
    let settings =
        "weir: {objectives: {batch: -9, own: 1}}\npools: {one: {}, two: {inferencePool: llama-pool}}\n";
    let folder = Folder::open(dir.path());
    let tables = table(&folder, settings);
    assert_eq!(tables["one"], map(&[("batch", -9), ("chat", 7), ("own", 1)]));
    assert_eq!(tables["two"], map(&[("batch", -9), ("chat", 3), ("own", 1)]));
    let faults = folder.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].contains("c.json: line 1: the objective \"chat\" of \"one\" stands in a.yaml"),
        "{faults:?}"
    );

    let mut effective = from_text(settings, []).unwrap();
    folder.explain(&mut effective);
    let row = effective.row("pools.two.objectives.chat").unwrap();
    assert!(row.note.ends_with("b.yml:1") && !row.inactive, "{row:?}");
    let row = effective.row("pools.one.objectives.batch").unwrap();
    assert!(row.note.contains("weir.objectives goes first") && row.inactive, "{row:?}");
    assert_eq!(effective.warnings.len(), 1);
    let mut effective = from_text("pools: {one: {}}", []).unwrap();
    folder.explain(&mut effective);
    assert!(
        effective.notices[0].text.contains("\"llama-pool\" concern no pool; known: one"),
        "{:?}",
        effective.notices
    );
}

#[test]
fn changes_mistakes_and_deletions_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let of = |folder: &Folder| table(folder, "")["default"].clone();
    fs::write(file("a.yaml"), object("a", "default", "  priority: 1\n")).unwrap();
    fs::write(file("b.yaml"), object("b", "default", "  priority: 2\n")).unwrap();
    let mut folder = Folder::open(dir.path());
    assert_eq!(of(&folder), map(&[("a", 1), ("b", 2)]));
    assert!(!folder.look());

    // A mistake is named; what the file said before and what others say is kept.
    fs::write(file("a.yaml"), object("a", "default", "  priority: some\n")).unwrap();
    fs::write(file("b.yaml"), object("b", "default", "  priority: 22\n")).unwrap();
    assert!(folder.look());
    assert_eq!(of(&folder), map(&[("a", 1), ("b", 22)]));
    assert!(
        folder.faults()[0].contains("a.yaml: line 6: spec.priority: found \"some\""),
        "{:?}",
        folder.faults()
    );
    assert!(folder.faults()[0].contains("what it said before is kept: objectives: 1"));
    assert!(!folder.look(), "said once");
    fs::write(file("a.yaml"), object("a", "default", "  priority: -11\n")).unwrap();
    assert!(folder.look() && folder.faults().is_empty());
    assert_eq!(of(&folder), map(&[("a", -11), ("b", 22)]));

    // One that is missing for a moment is being exchanged; one that stays away is gone.
    let text = fs::read(file("b.yaml")).unwrap();
    fs::remove_file(file("b.yaml")).unwrap();
    assert!(!folder.look());
    fs::write(file("b.yaml"), &text).unwrap();
    folder.look();
    assert_eq!(of(&folder), map(&[("a", -11), ("b", 22)]));
    fs::remove_file(file("b.yaml")).unwrap();
    assert!(!folder.look() && folder.look());
    assert_eq!(of(&folder), map(&[("a", -11)]));
    // A new file with nothing but a mistake has nothing in force.
    fs::write(file("c.yaml"), "- 1\n").unwrap();
    assert!(folder.look());
    assert!(folder.faults()[0].contains("nothing of it is in force"));

    // A folder that cannot be read is not an empty one.
    fs::rename(dir.path(), dir.path().with_extension("away")).unwrap();
    assert!(folder.look() && !folder.look());
    assert_eq!(of(&folder), map(&[("a", -11)]));
    fs::rename(dir.path().with_extension("away"), dir.path()).unwrap();
    assert!(folder.look());
}

/// As the kubelet does it: the files are links into `..data`, which is a link to a folder that is exchanged.
#[test]
fn a_mounted_config_map_that_is_exchanged_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let version = |name: &str, files: &[(&str, String)]| {
        fs::create_dir(at(name)).unwrap();
        for (file, text) in files {
            fs::write(at(name).join(file), text).unwrap();
        }
        symlink(name, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    };
    let first = [
        ("a.yaml", object("a", "default", "  priority: 1\n")),
        ("b.yaml", object("b", "default", "  priority: 2\n")),
    ];
    version("..2026_1", &first);
    symlink("..data/a.yaml", at("a.yaml")).unwrap();
    symlink("..data/b.yaml", at("b.yaml")).unwrap();
    let mut folder = Folder::open(dir.path());
    assert_eq!(table(&folder, "")["default"], map(&[("a", 1), ("b", 2)]));
    // The same size, and b is gone: its link dangles until the kubelet takes it away.
    version("..2026_2", &[("a.yaml", object("a", "default", "  priority: 5\n"))]);
    fs::remove_dir_all(at("..2026_1")).unwrap();
    assert!(folder.look());
    fs::remove_file(at("b.yaml")).unwrap();
    folder.look();
    assert!(folder.look());
    assert_eq!(table(&folder, "")["default"], map(&[("a", 5)]));
    assert!(folder.faults().is_empty());
}
