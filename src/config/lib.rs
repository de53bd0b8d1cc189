//! The configuration: YAML in, one validated and explained set of effective values out.
