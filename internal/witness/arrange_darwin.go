package witness

// reapFormerWitnesses does nothing: no witness exits here because the program replaced itself by exec.
func reapFormerWitnesses() {}
