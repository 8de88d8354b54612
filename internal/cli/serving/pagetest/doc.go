// Package pagetest tests the status page in a browser. It is a module of its own, so that the election module does not depend on the
// libraries that control the browser.
package pagetest
