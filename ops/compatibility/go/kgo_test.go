// Package compatibility names the module whose own test-suite is run against the broker.
package compatibility

import _ "github.com/twmb/franz-go/pkg/kgo"
