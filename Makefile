# SPDX-License-Identifier: GPL-2.0-only
#
# dm-cowsnap: see `make help`. What the module is made of is said in Kbuild.

KVER ?= $(shell uname -r)
KDIR ?= /lib/modules/$(KVER)/build
KMAKE = $(MAKE) -C $(KDIR) M=$(CURDIR)

# For `make check` KVER is one of the kernels to test, not one to build for.
ifeq ($(origin KVER),file)
CHECK_KVER =
else
CHECK_KVER = $(KVER)
endif

# W=1 and C=2 given on the command line reach kbuild by themselves.
all: modules

modules:
	+$(KMAKE) modules

# What some tests load beside it.
test-modules:
	+$(MAKE) -C $(KDIR) M=$(CURDIR)/tests/fault modules

# Signing is left out: the key belongs to whoever built the kernel.
install: modules
	$(KMAKE) modules_install CONFIG_MODULE_SIG_ALL=
	depmod $(if $(INSTALL_MOD_PATH),-b $(INSTALL_MOD_PATH)) \
		$(shell $(MAKE) -s --no-print-directory -C $(KDIR) kernelrelease)

# In dm-snapshot's place for LVM: docs/lvm.md. (DESTDIR= for another system.)
install-lvm:
	etc/lvm-place $(if $(FORCE),-f) install

uninstall-lvm:
	etc/lvm-place $(if $(FORCE),-f) remove

# What starts the origins of /etc/cowsnaptab: cowsnaptab(5). (DESTDIR= for another system.)
install-boot:
	install -D -m 755 etc/systemd/cowsnap-generator \
		$(DESTDIR)/usr/lib/systemd/system-generators/cowsnap-generator
	install -D -m 644 etc/udev/65-cowsnap.rules $(DESTDIR)/usr/lib/udev/rules.d/65-cowsnap.rules
	install -D -m 755 etc/update-initramfs $(DESTDIR)/usr/lib/cowsnap/update-initramfs
	install -D -m 755 etc/initramfs-tools/hooks/cowsnap \
		$(DESTDIR)/usr/share/initramfs-tools/hooks/cowsnap
	install -D -m 755 etc/initramfs-tools/scripts/local-top/cowsnap \
		$(DESTDIR)/usr/share/initramfs-tools/scripts/local-top/cowsnap
	install -D -m 755 etc/dracut/90cowsnap/module-setup.sh \
		$(DESTDIR)/usr/lib/dracut/modules.d/90cowsnap/module-setup.sh

# Packages, in dist/ (or OUT=): dm-cowsnap-dkms, cowsnap-tools, libcowsnap and its Python module.
deb:
	packaging/deb $(OUT)

rpm:
	packaging/rpm/build $(OUT)

clean:
	$(KMAKE) clean
	$(MAKE) -C tools clean

# The cowsnap command and libcowsnap; needs the libraries of libblkid-dev, libdevmapper-dev,
# libjson-c-dev and libzstd-dev.
tools:
	$(MAKE) -C tools

install-tools: tools
	$(MAKE) -C tools install

style:
	tests/style

check:
	tests/check $(if $(CHECK_KVER),-k $(CHECK_KVER)) $(T)

# LVM in full: the long tests, a database, boots from a root volume with a snapshot, and the
# segment type cowsnap with the lvm2 of Debian 12 and 13. lvm2's own scripts, which take hours on an
# emulated machine, run in the quick kernel.
LVM_TESTS = lvm $(filter-out lvm2-scripts,$(notdir $(basename $(wildcard tests/lvm/*.t))))
check-lvm: export COWSNAP_TEST_TIMEOUT ?= 5000
check-lvm: export COWSNAP_VM_TIMEOUT ?= 9000
check-lvm:
	tools/lvm2/build --tests
	tests/check -r db -k $(or $(CHECK_KVER),quick) lvm2-scripts
	tests/check -r db $(if $(CHECK_KVER),-k $(CHECK_KVER),-k 6.1 -k 6.12) $(LVM_TESTS)
	tests/lvm/boot $(if $(CHECK_KVER),-k $(CHECK_KVER))
	for root in db trixie; do \
		tools/lvm2/build $$root && \
		tests/check -r $$root $(if $(CHECK_KVER),-k $(CHECK_KVER),-k 6.1 -k 6.12) lvm-type \
			$(notdir $(basename $(wildcard tests/lvm-type/*.t))) && \
		tests/lvm-type/reboot -r $$root $(if $(CHECK_KVER),-k $(CHECK_KVER)) || exit; \
	done

# Machines with systemd, from the installation of the packages to their removal, whose root and data
# have snapshots from boot on; Debian 12, 13 and sid with their kernels, initramfs-tools and dracut.
# Hours. T="SUITE WAY" for one of them.
check-boot:
	tests/boot/boot $(T)

# The Debian packages in clean Debian 12, 13 and sid, with a machine each that is upgraded while it
# has snapshots.
check-packages:
	tests/packages/packages $(T)

# The commands of docs/integration.md: a database, disks of virtual machines.
check-guides:
	tests/check -r guides -k $(or $(CHECK_KVER),6.1) $(or $(T),$(notdir $(basename $(wildcard tests/guides/*.t))))

# Those of docs/remote.md: disks over a network, and two machines of which one is lost.
check-remote:
	tests/check -r guides -k $(or $(CHECK_KVER),6.1) $(notdir $(basename $(wildcard tests/remote/*.t)))
	tests/remote/two $(if $(CHECK_KVER),-k $(CHECK_KVER))

# All in User Mode Linux; what needs two processors also in QEMU, which is slow.
check-debug:
	tests/check -k uml -k debug $(T)

# The cowsnap command in full: damaged streams and stores, wrong command lines, what is killed on
# its way at every step, a new user's whole story.
TOOL_TESTS = command interrupted python readme receive send send-cost story tools-errors
check-tools:
	COWSNAP_SCALE=$(or $(SCALE),100) COWSNAP_FUZZ_CASES=$(or $(MUTATIONS),20000) COWSNAP_TEST_TIMEOUT=3000 \
		tests/check -k $(or $(CHECK_KVER),6.1) $(or $(T),$(addprefix host/,command stream tools fuzz) $(TOOL_TESTS))

# Hours: thousands of power cuts, a hundred thousand damaged stores.
check-long:
	COWSNAP_CUTS=$(or $(CUTS),4000) COWSNAP_TEST_TIMEOUT=20000 COWSNAP_VM_TIMEOUT=22000 \
		COWSNAP_MUTATIONS=$(or $(LOADS),500) tests/check -k $(or $(CHECK_KVER),quick) power-cut load-fuzz
	$(MAKE) -C tests/fuzz run N=$(or $(MUTATIONS),100000)

sabotage:
	tests/sabotage

# In virtual time: figures that repeat. See tests/bench/README.md.
bench:
	tests/vm/setup bench
	tests/bench/bench $(if $(B),$(B),--report docs)

# Exact counts against those committed: depends on no clock.
bench-check:
	tests/vm/setup bench
	tests/bench/bench --check

ifeq ($(HOST),1)
demo: modules
	tests/vm/setup demo
	tests/demo
else
demo:
	tests/vm/setup
	tests/vm/run -k 6.1 -- tests/demo
endif

help:
	@echo 'make              build dm-cowsnap.ko for the running kernel'
	@echo 'make install      install it (INSTALL_MOD_PATH= as in the kernel) and run depmod'
	@echo 'make tools        build the cowsnap command and libcowsnap'
	@echo 'make install-tools  install them, with manual page, completions, Python module'
	@echo 'make install-boot  install what starts the origins of /etc/cowsnaptab at boot'
	@echo 'make install-lvm  put the module into dm-snapshot'\''s place for LVM (docs/lvm.md)'
	@echo 'make uninstall-lvm  take it out again'
	@echo 'make deb          build Debian packages in dist/ (OUT=: elsewhere)'
	@echo 'make rpm          build RPM packages there'
	@echo 'make clean        remove what a build leaves'
	@echo 'make style        sparse, W=1, checkpatch --strict, shellcheck; no warning allowed'
	@echo 'make check        test in virtual machines with 6.1, 6.12 and the newest kernel'
	@echo 'make check-debug  all of it in a kernel with KASAN, lockdep, kmemleak and failing allocations'
	@echo 'make check-lvm    LVM in full, on 6.1 and 6.12'
	@echo 'make check-tools  the cowsnap command in full: streams, wrong command lines, interruptions'
	@echo 'make check-boot   boot Debian 12, 13 and sid from a root volume with snapshots (T=SUITE)'
	@echo 'make check-packages  the Debian packages in clean Debian 12, 13 and sid (T=SUITE)'
	@echo 'make check-guides the guides to backups of databases and virtual machines'
	@echo 'make check-remote disks over NBD and DRBD, and a failover to a second machine'
	@echo 'make check-long   thousands of power cuts and damaged stores (CUTS=, MUTATIONS=)'
	@echo 'make sabotage     break each promise on purpose and see its test fail'
	@echo 'make bench        benchmarks in virtual time, beside dm-snapshot and dm-thin'
	@echo 'make bench-check  has it become slower? exact counts, a few minutes'
	@echo 'make demo         see it work in a virtual machine (HOST=1: on this machine)'
	@echo
	@echo 'KVER=VERSION      another kernel to build for; check: 6.1, 6.12, newest or a version'
	@echo 'KDIR=DIR          the build directory of the kernel, wherever it is'
	@echo 'B=NAME            bench: only this case'
	@echo 'T=NAME            check, check-debug, check-tools, check-guides: only tests/functional/NAME.t'

.PHONY: all modules test-modules install tools install-tools install-boot install-lvm uninstall-lvm \
	deb rpm clean style check check-lvm check-boot check-packages check-guides check-remote \
	check-debug check-tools check-long sabotage bench bench-check demo help
