// Package endtoend has what tests of the whole need: a provider under a manager with a controller that remembers
// what it was called for, an inventory that says what a test tells it to, and members to engage. The tests of one
// backend with everything above it are in the packages below; those of the aggregate alone are beside it.
package endtoend
