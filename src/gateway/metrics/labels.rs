//! Label values that callers choose, bounded: the first so many names keep their own, the rest share `other`.

use std::collections::HashMap;

/// The shared overflow value.
pub const OTHER: u32 = 0;

/// The word of the shared overflow value.
pub const OTHER_NAME: &str = "other";

/// Names in use, each counted, so that a name that went out of use gives its place back.
#[derive(Debug)]
pub struct Labels {
    ids: HashMap<Box<str>, u32>,
    names: Vec<(Box<str>, u64)>,
    free: Vec<u32>,
    max: usize,
}

impl Labels {
    /// At most `max` names besides `other`; the `reserved` ones have their place for ever.
    pub fn new(max: usize, reserved: &[String]) -> Self {
        let other: Box<str> = OTHER_NAME.into();
        let ids = HashMap::from([(other.clone(), OTHER)]);
        let mut labels = Labels { ids, names: vec![(other, 1)], free: Vec::new(), max };
        for name in reserved {
            labels.take(name);
        }
        labels
    }

    /// One more user of `name`. A name that is literally `other` is the overflow value, which never goes.
    pub fn take(&mut self, name: &str) -> u32 {
        if let Some(id) = self.ids.get(name) {
            self.names[*id as usize].1 += 1;
            return *id;
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.names.len() > self.max => return OTHER,
            None => {
                self.names.push((Box::default(), 0));
                (self.names.len() - 1) as u32
            }
        };
        self.names[id as usize] = (name.into(), 1);
        self.ids.insert(name.into(), id);
        id
    }

    /// One more user of a value that is in use.
    pub fn hold(&mut self, id: u32) {
        if let Some((_, users)) = self.names.get_mut(id as usize) {
            *users += 1;
        }
    }

    /// One user less; true if the name is gone with it, and its series must go too.
    pub fn release(&mut self, id: u32) -> bool {
        let Some((name, users)) = self.names.get_mut(id as usize) else { return false };
        *users = users.saturating_sub(1);
        if id == OTHER || *users > 0 {
            return false;
        }
        self.ids.remove(name);
        *name = Box::default();
        self.free.push(id);
        true
    }

    /// The value for a name, without making a place for it.
    pub fn look(&self, name: &str) -> u32 {
        self.ids.get(name).copied().unwrap_or(OTHER)
    }

    /// The name of a value.
    pub fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or(OTHER_NAME, |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c132_a_flood_of_names_shares_one_value_and_gives_places_back() {
        let mut labels = Labels::new(2, &[]);
        let (a, b) = (labels.take("a"), labels.take("b"));
        assert_eq!(labels.take("c"), OTHER);
        assert_eq!(labels.take("a"), a);
        assert!(!labels.release(a), "one user is left");
        assert!(labels.release(a));
        assert_eq!(labels.look("a"), OTHER);
        let c = labels.take("c");
        assert_eq!((labels.name(c), labels.name(b)), ("c", "b"));
        let other = labels.take("other");
        assert_eq!(other, OTHER);
        assert!(!labels.release(other), "the shared value never goes");
        assert!(!labels.release(OTHER));
        assert_eq!(labels.name(OTHER), "other");
    }

    #[test]
    fn c133_reserved_names_keep_their_place_in_a_flood() {
        let mut labels = Labels::new(3, &["m1".to_owned()]);
        for junk in 0..100 {
            labels.take(&format!("junk{junk}"));
        }
        let m1 = labels.take("m1");
        assert_eq!(labels.name(m1), "m1");
        assert!(!labels.release(m1), "reserved for ever");
    }
}
