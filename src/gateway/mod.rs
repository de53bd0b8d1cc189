//! HTTP faces: parse, check, propose an input, answer what was decided.
