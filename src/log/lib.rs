//! The decision log: group commit over sled, sealed segments, snapshots, recovery.
