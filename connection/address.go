package connection

import (
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// address is a URL of a server or proxy, taken apart.
type address struct {
	scheme string     // lower case
	host   string     // lower case, without brackets
	port   string     // as written; empty if there is none
	path   string     // escaped; empty or "/…", without a trailing slash
	ip     netip.Addr // reduced to IPv4 where it stands for that

	hasUser            bool
	username, password string

	badHost bool    // the host is neither an IP address nor a DNS name
	problem Problem // why the URL cannot be used otherwise; empty if it can
}

// parseAddress takes a URL apart. What is wrong with it is noted in the result, so that policy sees as much of
// it as could be made out.
func parseAddress(text string, schemes ...string) (a address) {
	if !strings.Contains(text, "://") {
		a.problem = ProblemNoScheme
		if text == "" {
			a.problem = ProblemMissing
		}
		return a
	}
	u, err := url.Parse(text)
	if err != nil {
		// The text of err quotes the URL. What stands before an @ would be user information for another parser.
		a.problem = ProblemURL
		if authority, _, _ := strings.Cut(text[strings.Index(text, "://")+3:], "/"); strings.Contains(authority, "@") {
			a.hasUser = true
		}
		if scheme, _, _ := strings.Cut(text, "://"); strings.EqualFold(scheme, "http") {
			a.scheme = "http"
		}
		return a
	}
	a.scheme = u.Scheme
	if u.User != nil {
		a.hasUser, a.username = true, u.User.Username()
		a.password, _ = u.User.Password()
	}
	a.host, a.port = strings.ToLower(u.Hostname()), u.Port()
	a.path = strings.TrimRight(u.EscapedPath(), "/")
	a.ip, a.badHost = parseHost(a.host)

	known := false
	for _, s := range schemes {
		known = known || s == a.scheme
	}
	switch {
	case !known:
		a.problem = ProblemScheme
	case u.Opaque != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		a.problem = ProblemURL
	case a.host == "":
		a.badHost, a.problem = false, ProblemURL
	case strings.HasSuffix(u.Host, ":") || a.port != "" && !validPort(a.port):
		a.problem = ProblemPort
	case a.path != "" && path.Clean(u.Path) != strings.TrimRight(u.Path, "/"):
		a.problem = ProblemURL // dot segments and empty ones: proxies and servers disagree on what they mean
	}
	return a
}

// String puts the URL together again, without user information.
func (a *address) String() string {
	host := a.host
	if a.port != "" {
		host = net.JoinHostPort(a.host, a.port)
	} else if strings.Contains(a.host, ":") { // an IPv6 address, perhaps one that stands for IPv4
		host = "[" + a.host + "]"
	}
	return a.scheme + "://" + host + a.path
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && port[0] != '+'
}

// parseHost returns a host's address if it is one, and whether it is neither an address nor a DNS name. An
// IPv6 zone names an interface of one machine, so it is no address here. A DNS name does not end in
// a number, as 127.1 and 0x7f000001 do: some resolvers take them for addresses (RFC 3696, section 2).
func parseHost(host string) (ip netip.Addr, bad bool) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return plain(ip), ip.Zone() != ""
	}
	return netip.Addr{}, !validDNSName(host)
}

func validDNSName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
		last = label
	}
	_, err := strconv.ParseUint(last, 0, 64)
	allDigits := strings.Trim(last, "0123456789") == ""
	return err != nil && !allDigits
}

// plain returns the IPv4 address that an IPv6 address stands for (mapped, or NAT64 by RFC 6052), if it does.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if ip.Is6() {
		b := ip.As16()
		if [12]byte(b[:12]) == [12]byte{0x00, 0x64, 0xff, 0x9b} {
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return ip
}

func (a *address) name() string { return strings.TrimSuffix(a.host, ".") }

// loopback reports whether the address is this machine. An unspecified address is taken for it by many systems.
func (a *address) loopback() bool {
	if a.ip.IsValid() {
		return a.ip.IsLoopback() || a.ip.IsUnspecified() || a.ip.Is4() && a.ip.As4()[0] == 0
	}
	switch name := withoutLocalDomain(a.name()); name {
	case "localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback": // of the hosts files of distributions
		return true
	default:
		return strings.HasSuffix(name, ".localhost") // RFC 6761
	}
}

// withoutLocalDomain cuts what distributions put behind names of this machine.
func withoutLocalDomain(name string) string {
	for _, domain := range []string{".localdomain", ".localdomain4", ".localdomain6"} {
		if short, ok := strings.CutSuffix(name, domain); ok {
			return short
		}
	}
	return name
}

// linkLocal reports whether the address is valid on one link only, where clouds serve credentials, or is another one
// where they do.
func (a *address) linkLocal() bool {
	if a.ip.IsValid() {
		switch a.ip.String() {
		case "fd00:ec2::254", "fd20:ce::254", "100.100.100.200": // AWS, Google and Alibaba
			return true
		}
		return a.ip.IsLinkLocalUnicast() || a.ip.IsMulticast()
	}
	switch a.name() {
	case "metadata", "metadata.goog", "metadata.google.internal":
		return true
	}
	return false
}

// within reports whether the address, as it is written or reduced, is in a network, which may be one of mapped addresses.
func (a *address) within(network netip.Prefix) bool {
	if !a.ip.IsValid() {
		return false
	}
	const mapped = 96 // bits in front of a mapped IPv4 address (RFC 4291)
	if bits := network.Bits(); network.Addr().Is4In6() && bits >= mapped {
		network = netip.PrefixFrom(network.Addr().Unmap(), bits-mapped)
	}
	written, err := netip.ParseAddr(a.host)
	return network.Contains(a.ip) || err == nil && network.Contains(written)
}

// private reports whether the address is of a private network.
func (a *address) private() bool {
	if !a.ip.IsValid() {
		return false
	}
	shared := a.ip.Is4() && a.ip.As4()[0] == 100 && a.ip.As4()[1]&0xc0 == 64 // RFC 6598
	return a.ip.IsPrivate() || shared
}

// is reports whether the address is at entry, which is "host" or "host:port".
func (a *address) is(entry string) bool {
	host, port := entry, ""
	if _, err := netip.ParseAddr(entry); err != nil {
		if h, p, err := net.SplitHostPort(entry); err == nil {
			host, port = h, p
		}
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if port != "" && port != a.effectivePort() {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return a.ip.IsValid() && plain(ip) == a.ip
	}
	return !a.ip.IsValid() && host == a.name()
}

func (a *address) effectivePort() string {
	switch {
	case a.port != "":
		return strings.TrimLeft(a.port, "0")
	case a.scheme == "http":
		return "80"
	case a.scheme == "socks5":
		return "1080"
	default:
		return "443"
	}
}
