// Package tools pins the linters, and tests the rules that they are given. It is a module of its own, so that
// the library's go.mod stays free of them.
package tools
