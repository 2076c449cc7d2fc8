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

# LVM in full: the long tests, lvm2's own scripts, a database, boots from a root volume with a
# snapshot, and the segment type cowsnap with the lvm2 of Debian 12 and 13.
check-lvm:
	tools/lvm2/build --tests
	COWSNAP_TEST_TIMEOUT=$(or $(COWSNAP_TEST_TIMEOUT),5000) COWSNAP_VM_TIMEOUT=$(or $(COWSNAP_VM_TIMEOUT),9000) \
		tests/check -r db $(if $(CHECK_KVER),-k $(CHECK_KVER),-k 6.1 -k 6.12) lvm $(notdir $(basename $(wildcard tests/lvm/*.t)))
	tests/lvm/boot $(if $(CHECK_KVER),-k $(CHECK_KVER))
	for root in db trixie; do \
		tools/lvm2/build $$root && \
		tests/check -r $$root $(if $(CHECK_KVER),-k $(CHECK_KVER),-k 6.1 -k 6.12) lvm-type \
			$(notdir $(basename $(wildcard tests/lvm-type/*.t))) && \
		tests/lvm-type/reboot -r $$root $(if $(CHECK_KVER),-k $(CHECK_KVER)) || exit; \
	done

check-debug:
	tests/check -k debug $(T)

# Hours: thousands of power cuts, a hundred thousand damaged stores.
check-long:
	COWSNAP_CUTS=$(or $(CUTS),4000) COWSNAP_TEST_TIMEOUT=20000 COWSNAP_VM_TIMEOUT=22000 \
		COWSNAP_MUTATIONS=$(or $(LOADS),500) tests/check -k 6.1 power-cut load-fuzz
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
	@echo 'make install-lvm  put the module into dm-snapshot'\''s place for LVM (docs/lvm.md)'
	@echo 'make uninstall-lvm  take it out again'
	@echo 'make clean        remove what a build leaves'
	@echo 'make style        sparse, W=1, checkpatch --strict, shellcheck; no warning allowed'
	@echo 'make check        test in virtual machines with 6.1, 6.12 and the newest kernel'
	@echo 'make check-debug  all of it in a kernel with KASAN, lockdep, kmemleak and failing allocations'
	@echo 'make check-lvm    LVM in full, on 6.1 and 6.12'
	@echo 'make check-long   thousands of power cuts and damaged stores (CUTS=, MUTATIONS=)'
	@echo 'make sabotage     break each promise on purpose and see its test fail'
	@echo 'make bench        benchmarks in virtual time, beside dm-snapshot and dm-thin'
	@echo 'make bench-check  has it become slower? exact counts, a few minutes'
	@echo 'make demo         see it work in a virtual machine (HOST=1: on this machine)'
	@echo
	@echo 'KVER=VERSION      another kernel to build for; check: 6.1, 6.12, newest or a version'
	@echo 'KDIR=DIR          the build directory of the kernel, wherever it is'
	@echo 'B=NAME            bench: only this case'
	@echo 'T=NAME            check, check-debug: only tests/functional/NAME.t'

.PHONY: all modules install tools install-tools install-lvm uninstall-lvm clean style check check-lvm \
	check-debug check-long \
	sabotage bench bench-check demo help
