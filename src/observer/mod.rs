//! Turns what endpoints report into observations: scrape, push, deadband, edges.
