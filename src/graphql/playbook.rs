//! The playbook: questions as people ask them after an incident, each a query in `graphql/queries`.

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// The query, with what it answers on top.
    pub text: &'static str,
}

macro_rules! questions {
    ($($name:literal),* $(,)?) => {
        /// Every question, by name.
        pub const QUESTIONS: &[Question] = &[
            $(Question { name: $name, text: include_str!(concat!("../../graphql/queries/", $name, ".graphql")) }),*
        ];
    };
}

questions![
    "how-far-are-the-answers",
    "how-long-did-requests-wait",
    "since-when-was-the-pool-empty-or-blind",
    "was-the-pool-saturated",
    "what-became-of-a-callers-request",
    "what-did-the-queue-look-like",
    "what-happened-in-order",
    "what-stood-in-the-queue",
    "what-went-wrong",
    "which-configuration-decided",
    "which-requests-waited-longest",
    "who-was-evicted-for-whom",
    "who-was-shed-and-why",
    "why-was-this-request-shed",
];

impl Question {
    /// The question of this name.
    pub fn named(name: &str) -> Option<&'static Question> {
        QUESTIONS.iter().find(|question| question.name == name)
    }

    /// What it answers: the comment on top.
    pub fn about(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix('#'));
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    }

    /// Its variables, as they are declared: name and type.
    pub fn variables(&self) -> Vec<(String, String)> {
        // The comment may have brackets and braces of its own.
        let begin: usize =
            self.text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
        let head = self.text[begin..].split_once('{').map_or("", |(head, _)| head);
        let Some((_, list)) = head.split_once('(') else { return Vec::new() };
        let list = list.rsplit_once(')').map_or(list, |(list, _)| list);
        let declared = list.split(',').filter_map(|one| one.trim().strip_prefix('$')?.split_once(':'));
        declared.map(|(name, ty)| (name.trim().to_owned(), ty.trim().to_owned())).collect()
    }
}
