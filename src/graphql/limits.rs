//! The limits on a question, all of them checked before any work is done, each named when it is exceeded.
//!
//! Fragments are weighed once each, so that no nesting of them makes the check itself long. Not here: the limit of time
//! (`weir_projection::Work`), and the sizes of pages, which the resolvers check.

use crate::fault::Fault;
use async_graphql::parser::types::{
    ExecutableDocument, Field, FragmentDefinition, OperationDefinition, Selection, SelectionSet,
};
use async_graphql::{Name, Positioned, Value, Variables};
use std::collections::HashMap;

/// What is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request.
    pub bytes: usize,
    /// Words and signs of a question (a text in quotes is one), counted before it is parsed, which cannot be paused:
    /// twenty times what stock clients ask of the schema, and some milliseconds of work.
    pub tokens: usize,
    /// Questions of one request.
    pub batch: usize,
    /// Fields within fields.
    pub depth: usize,
    /// Fields under another name.
    pub aliases: usize,
    /// Directives.
    pub directives: usize,
    /// Fields, counted as often as they may be answered: a list counts as many times as it may hold.
    pub complexity: usize,
    /// May the schema be asked for?
    pub introspection: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes: 64 << 10,
            tokens: 4_000,
            batch: 5,
            depth: 16,
            aliases: 30,
            directives: 20,
            complexity: 50_000,
            introspection: true,
        }
    }
}

/// Elements that a list is taken to hold, where its field says nothing else.
const LISTS: [(&str, usize); 20] = [
    ("requests", 50),
    ("events", 100),
    ("reclamations", 20),
    ("regimes", 50),
    ("incidents", 50),
    ("series", 10),
    ("points", 60),
    ("history", 20),
    ("queue", 100),
    ("leases", 100),
    ("victims", 4),
    ("timeline", 10),
    ("hit", 10),
    ("facts", 10),
    // Of the schema itself.
    ("types", 150),
    ("fields", 20),
    ("args", 8),
    ("inputFields", 15),
    ("enumValues", 10),
    ("possibleTypes", 50),
];

/// A field that folds part of the log counts as many.
const HEAVY: [(&str, usize); 4] =
    [("stateAt", 2_000), ("explanation", 200), ("totalCount", 500), ("events", 200)];

/// A field of the query itself counts as so many more.
const ROOT: usize = 20;
/// So many fields of the schema count as one: what stock clients ask of it before anything else takes half of what is allowed.
const SCHEMA_SHARE: usize = 40;
/// Brackets within brackets, counted before anything is parsed.
const NESTING_MAX: usize = 64;

/// Is the text so long or nested so deeply that it must not even be parsed? `tokens`: [`Limits::tokens`].
///
/// # Errors
/// It is.
pub fn check_text(text: &str, tokens: usize) -> Result<(), Fault> {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    let (mut found, mut in_word, mut comment) = (0, false, false);
    for byte in text.bytes() {
        let word = byte.is_ascii_alphanumeric() || byte == b'_';
        // A quote that is not closed in its line is wrong and ends there, as it does for the parser.
        match byte {
            b'\n' => (quoted, escaped, comment) = (false, false, false),
            _ if comment => {}
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => {
                found += usize::from(!quoted);
                quoted = !quoted;
            }
            _ if quoted => {}
            b'#' => comment = true,
            _ if word => found += usize::from(!in_word),
            b' ' | b'\t' | b'\r' | b',' => {}
            b'{' | b'[' | b'(' => {
                found += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' | b')' => {
                found += 1;
                depth = depth.saturating_sub(1);
            }
            _ => found += 1,
        }
        in_word = word && !quoted && !comment;
    }
    over("TOO_DEEP", "the nesting of brackets", deepest, NESTING_MAX)?;
    over("TOO_MANY_TOKENS", "the words and signs", found, tokens)
}

/// What a part of a question weighs.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    complexity: usize,
    depth: usize,
}

struct Scale<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    variables: &'a Variables,
    /// `None` while it is being weighed: who meets itself goes in circles.
    known: HashMap<&'a str, Option<Weight>>,
    limits: &'a Limits,
    aliases: usize,
    directives: usize,
    introspects: bool,
}

impl Limits {
    /// Is this question within the limits? Gives what it weighs.
    ///
    /// # Errors
    /// The first limit that is exceeded.
    pub fn check(&self, document: &ExecutableDocument, variables: &Variables) -> Result<usize, Fault> {
        let mut scale = Scale {
            fragments: &document.fragments,
            variables,
            known: HashMap::new(),
            limits: self,
            aliases: 0,
            directives: 0,
            introspects: false,
        };
        let mut complexity = 0_usize;
        for (_, operation) in document.operations.iter() {
            complexity = complexity.saturating_add(scale.operation(&operation.node)?);
        }
        Ok(complexity)
    }
}

fn over(code: &'static str, what: &'static str, found: usize, limit: usize) -> Result<(), Fault> {
    if found > limit { Err(Fault::Limit { code, what, found: found.to_string(), limit }) } else { Ok(()) }
}

impl<'a> Scale<'a> {
    fn operation(&mut self, operation: &'a OperationDefinition) -> Result<usize, Fault> {
        self.directives += operation.directives.len();
        let weight = self.set(&operation.selection_set.node, 0, true)?;
        if self.introspects && !self.limits.introspection {
            let code = "INTROSPECTION_DISABLED";
            return Err(Fault::Limit {
                code,
                what: "introspection",
                found: "asked for".to_owned(),
                limit: 0,
            });
        }
        over("TOO_COMPLEX", "the complexity", weight.complexity, self.limits.complexity)?;
        Ok(weight.complexity)
    }

    /// `root`: these are fields of the query itself.
    fn set(&mut self, set: &'a SelectionSet, depth: usize, root: bool) -> Result<Weight, Fault> {
        // Counted from above as well, so that a deep nesting is left as soon as it is too deep.
        over("TOO_DEEP", "the depth", depth, self.limits.depth)?;
        let mut all = Weight::default();
        for selection in &set.items {
            let one = match &selection.node {
                Selection::Field(field) => self.field(&field.node, depth, root)?,
                Selection::InlineFragment(fragment) => {
                    self.directives += fragment.node.directives.len();
                    self.set(&fragment.node.selection_set.node, depth, root)?
                }
                Selection::FragmentSpread(spread) => {
                    self.directives += spread.node.directives.len();
                    self.fragment(spread.node.fragment_name.node.as_str())?
                }
            };
            over("TOO_MANY_ALIASES", "the aliases", self.aliases, self.limits.aliases)?;
            over("TOO_MANY_DIRECTIVES", "the directives", self.directives, self.limits.directives)?;
            all.complexity = all.complexity.saturating_add(one.complexity);
            all.depth = all.depth.max(one.depth);
            over("TOO_DEEP", "the depth", depth + all.depth, self.limits.depth)?;
        }
        Ok(all)
    }

    fn fragment(&mut self, name: &str) -> Result<Weight, Fault> {
        let fragments = self.fragments;
        let Some((name, fragment)) = fragments.iter().find(|(known, _)| known.as_str() == name) else {
            return Ok(Weight::default());
        };
        match self.known.get(name.as_str()) {
            Some(Some(weight)) => Ok(*weight),
            Some(None) => Err(Fault::Request(format!("the fragment {name} contains itself"))),
            None => {
                self.known.insert(name.as_str(), None);
                let root = fragment.node.type_condition.node.on.node == "Query";
                let weight = self.set(&fragment.node.selection_set.node, 0, root)?;
                self.known.insert(name.as_str(), Some(weight));
                Ok(weight)
            }
        }
    }

    fn field(&mut self, field: &'a Field, depth: usize, root: bool) -> Result<Weight, Fault> {
        self.aliases += usize::from(field.alias.is_some());
        self.directives += field.directives.len();
        let name = field.name.node.as_str();
        self.introspects |= matches!(name, "__schema" | "__type");
        let inner = self.set(&field.selection_set.node, depth + 1, false)?;
        let own = HEAVY.iter().find(|(heavy, _)| *heavy == name).map_or(1, |(_, weight)| *weight);
        let times = self.times(field, name, root);
        let inner_all = inner.complexity.saturating_mul(times);
        // What is asked of the schema itself is answered from memory.
        let inner_all = if name.starts_with("__") { inner_all / SCHEMA_SHARE } else { inner_all };
        // A question of its own is more work than a field of its answer.
        let own = if root { own.saturating_add(ROOT) } else { own };
        Ok(Weight { complexity: own.saturating_add(inner_all), depth: inner.depth + 1 })
    }

    /// How many elements a field may have.
    fn times(&self, field: &Field, name: &str, root: bool) -> usize {
        let asked = field.arguments.iter().find(|(name, _)| matches!(name.node.as_str(), "first" | "last"));
        let asked = asked.and_then(|(_, value)| {
            let known =
                value.node.clone().into_const_with(|name| self.variables.get(&name).cloned().ok_or(()));
            match known {
                Ok(Value::Number(number)) => number.as_u64(),
                _ => None,
            }
        });
        // Of the query itself that is one report; of a state it is what waits.
        let report = root && name == "queue";
        let usual = || LISTS.iter().find(|(list, _)| *list == name && !report).map_or(1, |(_, times)| *times);
        asked.map_or_else(usual, |asked| usize::try_from(asked).unwrap_or(usize::MAX)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> usize {
        // The largest number that is too few.
        (0..100).rev().find(|limit| check_text(text, *limit).is_err()).map_or(0, |limit| limit + 1)
    }

    #[test]
    fn words_and_signs_are_counted_and_what_is_quoted_is_one() {
        for (text, wanted) in [
            ("", 0),
            ("{ pools { name } }", 6),
            ("{pools{name}}", 6),
            ("query Q($a: Int) { a }", 11),
            (r#"{ pool(name: "a { b c \" d }") { name } }"#, 11),
            ("{ a # a comment { [ (\n b }", 4),
            ("{ a, b, c }", 5),
            ("{ a \"not closed\n b }", 5),
        ] {
            assert_eq!(tokens(text), wanted, "{text}");
        }
        let deep = |levels: usize| check_text(&"{".repeat(levels), 1_000);
        assert!(deep(NESTING_MAX).is_ok() && deep(NESTING_MAX + 1).is_err());
        // Neither a quote nor a comment hides what follows its line.
        for hidden in ["\"", "#"] {
            assert!(check_text(&format!("{hidden}\n{}", "{".repeat(65)), 1_000).is_err(), "{hidden}");
        }
    }
}
