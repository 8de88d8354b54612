package dial

import (
	"fmt"
	"os"
	"strconv"
)

// Host returns the name of this host, at most 200 characters of it; in a container that is the name of the pod or of the container. It is empty if the
// system does not say it.
func Host() string {
	name := os.Getenv("HOSTNAME")
	if name == "" {
		name, _ = os.Hostname()
	}
	return fmt.Sprintf("%.200s", name)
}

// DefaultName returns the name of a candidate of this process: two processes of one host need different names, which are what people see and what a
// transfer names. The pod alone is enough in Kubernetes, and so is the container of process 1.
func DefaultName() string {
	host := Host()
	if host == "" || os.Getpid() == 1 || os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return host
	}
	return host + "-" + strconv.Itoa(os.Getpid())
}
