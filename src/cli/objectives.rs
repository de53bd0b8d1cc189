//! The folder of objectives while the service runs: looked at now and then, its mistakes said once.

use std::collections::BTreeSet;
use weir_config::{Effective, ObjectivesFolder};

/// The folder, if the settings name one.
#[derive(Debug, Default)]
pub struct Objectives {
    folder: Option<ObjectivesFolder>,
    said: BTreeSet<String>,
    /// What was found is not in force yet.
    again: bool,
}

impl Objectives {
    /// Of these settings, which then hold what it says.
    pub fn of(settings: &mut Effective) -> Self {
        let mut objectives = Objectives::default();
        objectives.follow(settings);
        objectives
    }

    /// From here on the folder of these settings, which then hold what it says.
    pub fn follow(&mut self, settings: &mut Effective) {
        let dir = settings.settings.objectives_dir.as_deref();
        if self.folder.as_ref().map(ObjectivesFolder::dir) != dir {
            self.folder = dir.map(ObjectivesFolder::open);
        }
        if let Some(folder) = &mut self.folder {
            folder.look();
            folder.apply(settings);
        }
        self.say();
    }

    /// Looks again. True if these settings changed by it.
    pub fn look(&mut self, settings: &mut Effective) -> bool {
        let Some(folder) = &mut self.folder else { return false };
        if !folder.look() && !std::mem::take(&mut self.again) {
            return false;
        }
        folder.apply(settings);
        self.say();
        true
    }

    /// It could not be put in force: the next look finds it again.
    pub fn again(&mut self, why: &str) {
        if !self.again {
            tracing::error!("{why}");
        }
        self.again = true;
    }

    fn say(&mut self) {
        let faults: BTreeSet<String> = self.folder.iter().flat_map(ObjectivesFolder::faults).collect();
        for fault in faults.difference(&self.said) {
            tracing::error!("weir.objectivesDir: {fault}");
        }
        self.said = faults;
    }
}
