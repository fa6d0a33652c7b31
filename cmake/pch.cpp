// Exists so that one target owns the precompiled header.
