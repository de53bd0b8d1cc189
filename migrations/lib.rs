//! Every format the decision log was ever written in, frozen, and the way from each to the current one.
