//! Finds what is owed and starts it again.
