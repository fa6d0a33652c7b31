// Exists so that each precompiled header has a target that owns it.
