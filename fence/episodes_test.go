package fence_test

func runAsLeader() bool { return false }
