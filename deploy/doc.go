// Package deploy has tests of everything in this folder. It is a module of its own, so that a program that imports election does
// not inherit Kubernetes and Compose.
package deploy
