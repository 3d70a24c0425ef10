//! Carries out what an accepted event proposes.
