package supervise

// adoptOrphans does nothing: on macOS process 1 reaps every orphan.
func adoptOrphans() (stop func()) { return func() {} }

// reapOrphans does nothing, because there are none.
func (c *children) reapOrphans() {}
