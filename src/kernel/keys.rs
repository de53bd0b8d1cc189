//! Idempotency keys: which call was the first with a key, and what became of it.

use crate::{Idempotency, KeyAnswer, RequestId};
use alloc::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(crate) struct KeyEntry {
    pub(crate) body: [u8; 8],
    pub(crate) request: RequestId,
    pub(crate) answer: Option<KeyAnswer>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    map: BTreeMap<[u8; 16], KeyEntry>,
    by_age: BTreeMap<RequestId, [u8; 16]>,
}

impl Keys {
    pub(crate) fn get(&self, key: &[u8; 16]) -> Option<&KeyEntry> {
        self.map.get(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn oldest(&self) -> Option<[u8; 16]> {
        self.by_age.first_key_value().map(|(_, key)| *key)
    }

    pub(crate) fn remember(&mut self, key: Idempotency, request: RequestId, answer: Option<KeyAnswer>) {
        self.forget(&key.key);
        self.map.insert(key.key, KeyEntry { body: key.body, request, answer });
        self.by_age.insert(request, key.key);
    }

    pub(crate) fn answer(&mut self, key: &Idempotency, request: RequestId, answer: KeyAnswer) {
        if let Some(entry) = self.map.get_mut(&key.key)
            && entry.request == request
        {
            entry.answer = Some(answer);
        }
    }

    pub(crate) fn forget(&mut self, key: &[u8; 16]) {
        if let Some(entry) = self.map.remove(key) {
            self.by_age.remove(&entry.request);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Idempotency, &KeyEntry)> {
        self.by_age.values().filter_map(|key| {
            self.map.get(key).map(|entry| (Idempotency { key: *key, body: entry.body }, entry))
        })
    }
}
